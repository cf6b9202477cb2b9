/** What happens to a POST: authenticate, read, parse, record, answer. The order is the contract's (DESIGN §2). */
import { hash } from 'node:crypto';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { Binary } from 'mongodb';
import { parseJsonObject } from '../application/parse-application.ts';
import type { KeyLookup } from '../partner/key-cache.ts';
import { later, type Clock } from '../platform/clock.ts';
import { hintFor, type Hint } from '../queue/job.ts';
import type { CommitResult } from '../submission/group-commit.ts';
import { FIRST_DUE_MS, RECORD_SCHEMA, type SubmissionRecord } from '../submission/submission.ts';
import { authenticate } from './authenticate.ts';
import { ACCEPTED_MESSAGE, errors, type ErrorAnswer } from './errors.ts';
import { KEPT_HEADER_CHARACTERS } from './limits.ts';
import type { ReadBody } from './read-body.ts';
import { traceparentOf } from './request-span.ts';

/** What the operation needs from outside. */
export interface SubmitTools {
  readonly clock: Clock;
  readonly lookupKey: (key: string) => KeyLookup;
  /** Makes a record durable and tells its fate; never rejects. */
  record(record: SubmissionRecord): Promise<CommitResult>;
  /** Keeps a refused request's record if there is room. */
  offer(record: SubmissionRecord): void;
  withdraw(record: SubmissionRecord): void;
  /** Tells the processor, after the answer. */
  hint(hint: Hint): void;
  readonly retention: { readonly malformedDays: number; readonly refusedDays: number };
  readonly metrics: {
    readonly acceptSeconds: { observe(value: number): void };
    readonly notAccepted: { inc(labels: { reason: string }): void };
  };
}

const DAY_MS = 86_400_000;

/** The stage between rate limit and body: answers 401 or 403, or notes the partner and lets the request go on. */
export async function authenticateRequest(
  request: FastifyRequest,
  reply: FastifyReply,
  tools: SubmitTools,
): Promise<void> {
  const authentication = authenticate(request.headers.authorization, tools.lookupKey);
  if (authentication.ok) {
    request.partnerId = authentication.partnerId;
    return;
  }
  const { answer, partnerId } = authentication;
  const now = tools.clock.now();
  tools.offer({
    ...metadata(request, now),
    ...(partnerId === undefined ? {} : { partnerId }),
    bodyBytes: 0,
    httpStatus: answer.status,
    ...finalState('refused', now, tools.retention.refusedDays),
  });
  await answerUnauthenticated(request, reply, answer);
}

/** Answers 401 or 403. */
export async function answerUnauthenticated(
  request: FastifyRequest,
  reply: FastifyReply,
  answer: ErrorAnswer,
): Promise<void> {
  if (answer.status === 401) reply.header('www-authenticate', 'Bearer');
  await answerEarly(request, reply, answer.status, { error: answer.error });
}

/** Answers a request whose body nobody wants: the body is drained first, so that no reset can eat the answer. */
export async function answerEarly(
  request: FastifyRequest,
  reply: FastifyReply,
  status: number,
  body: object,
): Promise<void> {
  const { reusable } = await request.incomingBody.drain();
  if (!reusable) reply.header('connection', 'close');
  reply.code(status).send(body);
}

/** Reads, judges, records and answers an authenticated request. */
export async function submitApplication(
  request: FastifyRequest,
  reply: FastifyReply,
  tools: SubmitTools,
): Promise<void> {
  const body = await request.incomingBody.read();
  // A partner that sends too much may be sending it for ever, so its connection ends here in any case.
  if (!body.reusable || body.end === 'too_large') reply.header('connection', 'close');
  if (body.end === 'no_room') {
    tools.metrics.notAccepted.inc({ reason: 'no_room' });
    reply.code(errors.internal.status).send({ error: errors.internal.error });
    return;
  }
  const accepted = body.end === 'whole' && parseJsonObject(body.bytes) !== undefined;
  const record = recordOf(request, body, accepted, tools);

  const result = await tools.record(record);
  if (result !== 'stored') {
    if (result === 'in_doubt') {
      tools.withdraw(record);
      // A process that was frozen meanwhile (a paused machine) may be too late to withdraw: reconcile has the record by
      // now. A 500 could be untrue, and no answer is not.
      if (tools.clock.now().getTime() - record.receivedAt.getTime() >= FIRST_DUE_MS) {
        reply.hijack();
        request.raw.destroy();
        return;
      }
    }
    reply.code(errors.internal.status).send({ error: errors.internal.error });
    return;
  }
  tools.metrics.acceptSeconds.observe((tools.clock.monotonicMs() - request.startedAt) / 1_000);
  const data = { request_id: request.id };
  if (!accepted) {
    const answer = body.end === 'too_large' ? errors.tooLarge : errors.notAnObject;
    reply.code(answer.status).send({ error: answer.error, data });
    return;
  }
  reply.code(202).send({ message: ACCEPTED_MESSAGE, data });
  tools.hint(hintFor(record));
}

function recordOf(request: FastifyRequest, body: ReadBody, accepted: boolean, tools: SubmitTools): SubmissionRecord {
  const now = tools.clock.now();
  return {
    ...metadata(request, now),
    partnerId: request.partnerId,
    body: new Binary(body.bytes),
    bodyBytes: body.received,
    bodySha256: hash('sha256', body.bytes, 'hex'),
    httpStatus: accepted ? 202 : 400,
    ...(accepted
      ? {
          state: 'recorded',
          stateAt: now,
          dueAt: later(now, FIRST_DUE_MS),
          history: [{ state: 'recorded', at: now, attempt: 0 }],
        }
      : finalState('malformed', now, tools.retention.malformedDays)),
  };
}

function metadata(request: FastifyRequest, now: Date) {
  const userAgent = request.headers['user-agent'];
  const traceparent = traceparentOf(request);
  const { contentType } = request;
  return {
    _id: request.id,
    receivedAt: now,
    remoteIp: request.client.ip,
    ...(userAgent === undefined ? {} : { userAgent: userAgent.slice(0, KEPT_HEADER_CHARACTERS) }),
    ...(contentType === undefined ? {} : { contentType: contentType.slice(0, KEPT_HEADER_CHARACTERS) }),
    ...(traceparent === undefined ? {} : { traceparent }),
    schema: RECORD_SCHEMA,
    version: 0,
    attempts: 0,
  };
}

function finalState(state: 'malformed' | 'refused', now: Date, retentionDays: number) {
  return {
    state,
    stateAt: now,
    history: [{ state, at: now, attempt: 0 }],
    expiresAt: later(now, retentionDays * DAY_MS),
  };
}
