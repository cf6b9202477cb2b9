/**
 * Handles a POST in the contract's order: authenticate, limit, read, parse, record, answer.
 * `routes.ts` applies both limits: the address's before the key, the partner's after it.
 */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { claimsOf, normalizedApplicant } from '../application/fields.ts';
import { parseJsonObject } from '../application/parse-application.ts';
import { endingOf, probeOf } from '../application/sandbox-endings.ts';
import { defined } from '../platform/process/defined.ts';
import type { Logger } from '../platform/process/log.ts';
import type { HintOutbox } from '../queue/enqueue.ts';
import { hintFor } from '../queue/job.ts';
import type { ReceiptSigner } from '../receipt/receipt.ts';
import type { GroupCommit, Bound } from '../submission/group-commit.ts';
import {
  newRecord,
  FIRST_DUE_MS,
  type Received,
  type SubmissionRecord,
} from '../submission/submission.ts';
import type { Withdrawals } from '../submission/withdrawals.ts';
import type { IngestMetrics } from '../telemetry/metrics.ts';
import { authenticate, type KeyTools } from './authenticate.ts';
import { MAX_BODY_BYTES } from './bounds.ts';
import { INGEST_PATH } from './contract.ts';
import {
  ACCEPTED_MESSAGE,
  answerEarly,
  answerNotAccepted,
  closeAfterAnswer,
  type ErrorAnswer,
  errors,
} from './errors.ts';
import { type IdempotencyKey, readIdempotencyKey } from './idempotency-key.ts';
import type { Limits } from './limit-policy.ts';
import { preferenceIn } from './prefer.ts';
import type { ReadBody } from './read-body.ts';
import type { OutageLog, Refusals } from './refusals.ts';
import { playEnding } from './sandbox-answers.ts';

export interface SubmitTools extends KeyTools {
  readonly limits: Pick<Limits, 'ofAddress' | 'countTest'>;
  readonly commits: Pick<GroupCommit, 'record'>;
  readonly outages: Pick<OutageLog, 'note'>;
  readonly refusals: Pick<Refusals, 'keep'>;
  readonly withdrawals: Pick<Withdrawals, 'add'>;
  readonly hints: Pick<HintOutbox, 'add'>;
  /** Whether a 202 says where its state can be looked up. */
  readonly lookUps: boolean;
  /** Undefined where no keys sign receipts. */
  readonly receipts: Pick<ReceiptSigner, 'sign'> | undefined;
  readonly log: Pick<Logger, 'error'>;
  readonly retention: { readonly malformedDays: number; readonly refusedDays: number };
  readonly metrics: IngestMetrics;
}

/** False if the request has been answered. */
export function authenticateOrAnswer(
  request: FastifyRequest,
  reply: FastifyReply,
  tools: SubmitTools,
): boolean {
  // A 401 would look as if the key were withdrawn.
  if (!tools.keys.loaded) {
    tools.metrics.notAccepted.inc({ reason: 'keys_not_loaded' });
    answerEarly(request, reply, errors.internal);
    return false;
  }
  const refusal = authenticate(request, tools);
  if (refusal === undefined) return true;
  const { answer, because } = refusal;
  const received = receivedOf(request, tools.clock.now());
  const { keyId, test } = received;
  const partnerId = request.partnerId || undefined;
  if (because !== undefined) tools.metrics.keysOutOfTerms.inc({ because });
  tools.refusals.keep(
    {
      address: request.client.limitKey,
      status: answer.status,
      requestId: request.id,
      ...defined({ keyId, partnerId, test }),
    },
    () => {
      const keptDays = tools.retention.refusedDays;
      const result = { state: 'refused', httpStatus: answer.status, keptDays } as const;
      return newRecord({ ...received, partnerId }, result);
    },
  );
  answerEarly(request, reply, answer);
  return false;
}

export async function submitApplication(
  request: FastifyRequest,
  reply: FastifyReply,
  tools: SubmitTools,
): Promise<void> {
  const { incomingBody } = request;
  const body = sendsTooMuch(request, reply) ?? (await incomingBody.read());
  // A partner that sends too much may never stop.
  if (!body.reusable || body.end === 'too_large') closeAfterAnswer(request, reply);
  if (body.end === 'no_room') {
    tools.metrics.notAccepted.inc({ reason: 'no_room' });
    answerNotAccepted(reply);
    return;
  }
  const key = readIdempotencyKey(request.headers['idempotency-key']);
  const object = body.end === 'whole' ? parseJsonObject(body.bytes) : undefined;
  let fault = faultOf(body.end, object, key);
  const idempotencyKey = key.kind === 'given' ? key.key : undefined;
  const received = receivedOf(request, tools.clock.now());
  const ending = received.test && fault === undefined ? endingOf(object?.['ein']) : undefined;
  const played =
    ending && (await playEnding(ending, { idempotencyKey, request, reply, limits: tools.limits }));
  if (played === 'answered') return;
  fault ??= played?.fault;
  const dueInMs = played?.dueInMs;
  const probe = object && request.terms.probe ? probeOf(object) : undefined;
  const applicant = object && normalizedApplicant(claimsOf(object));
  const record = newRecord(
    received,
    fault === undefined
      ? { state: 'recorded', httpStatus: 202, body, idempotencyKey, applicant, dueInMs, probe }
      : {
          state: 'malformed',
          httpStatus: fault.status,
          body,
          keptDays: tools.retention.malformedDays,
        },
  );

  const recording = tools.commits.record(record);
  // The commit counts these bytes from now on.
  incomingBody.freeMemory();
  // Signed while the batch is written, sent only with a 202.
  const mayHave = fault === undefined && tools.receipts !== undefined;
  const receipt = mayHave ? receiptFor(record, request, tools) : undefined;
  const result = await recording;
  tools.outages.note(result);
  if ('reason' in result) tools.metrics.notAccepted.inc({ reason: result.reason });
  switch (result.kind) {
    case 'stored':
      tools.metrics.acceptSeconds.observe((tools.clock.monotonicMs() - request.startedAt) / 1_000);
      if (played?.losesAnswer) request.raw.socket.destroy();
      if (receipt !== undefined) addReceipt(receipt, reply, tools);
      answerStored(record._id, reply, tools, fault);
      if (fault === undefined && dueInMs === undefined) tools.hints.add(hintFor(record));
      return;
    case 'not_stored':
      return answerNotAccepted(reply);
    case 'in_doubt':
      tools.withdrawals.add(record);
      return isLate(record, tools) ? hangUp(request, reply) : answerNotAccepted(reply);
    case 'unknown':
      return hangUp(request, reply);
    case 'replayed':
    case 'mismatched':
    case 'erased':
      if (receipt !== undefined && result.kind === 'replayed')
        addReceipt(receiptFor(asFirst(record, result), request, tools), reply, tools);
      return answerBound(reply, result, tools, { sendsHint: dueInMs === undefined });
  }
}

/** If the process was frozen, a worker may have the record, so a 500 could be false. */
function isLate({ receivedAt }: SubmissionRecord, { clock }: SubmitTools): boolean {
  return clock.now().getTime() - receivedAt.getTime() >= FIRST_DUE_MS;
}

/** Neither a 202 nor a 500 is certain to be true. */
function hangUp(request: FastifyRequest, reply: FastifyReply): void {
  reply.hijack();
  // The request was read to its end, so destroying it would leave the connection open.
  request.raw.socket.destroy();
}

interface SignedReceipt {
  readonly text: string;
  /** By the request, not by the partner's Secret. */
  readonly isAsked: boolean;
}

/** Undefined if nobody wants one. Never throws, because the record may be stored. */
function receiptFor(
  record: SubmissionRecord,
  request: FastifyRequest,
  { receipts, metrics, log }: SubmitTools,
): SignedReceipt | undefined {
  const prefer = request.headers['prefer'];
  if (prefer === undefined && !request.terms.receipts) return undefined;
  const isAsked = preferenceIn(prefer, 'receipt') === '';
  if (!isAsked && !request.terms.receipts) return undefined;
  try {
    const text = receipts?.sign(record);
    // The `not_before` of every key is still to come.
    if (text === undefined) metrics.receipts.inc({ result: 'no_key' });
    return text === undefined ? undefined : { text, isAsked };
  } catch (error) {
    metrics.receipts.inc({ result: 'failed' });
    log.error({ request_id: request.id, err: error }, 'a receipt could not be signed');
    return undefined;
  }
}

/** The body of a repeat is the first one's, byte for byte. */
const asFirst = (record: SubmissionRecord, { first: { _id, receivedAt } }: Bound) => ({
  ...record,
  _id,
  receivedAt,
});

function addReceipt(
  receipt: SignedReceipt | undefined,
  reply: FastifyReply,
  { metrics }: SubmitTools,
): void {
  if (receipt === undefined) return;
  const { text, isAsked } = receipt;
  metrics.receipts.inc({ result: 'sent' });
  reply.header('receipt', text);
  if (isAsked) reply.header('preference-applied', 'receipt');
}

function sendsTooMuch(request: FastifyRequest, reply: FastifyReply): ReadBody | undefined {
  const { incomingBody } = request;
  if (!incomingBody.expectsContinue) return undefined;
  if (Number(request.headers['content-length'] ?? 0) <= MAX_BODY_BYTES) {
    reply.raw.writeContinue();
    return undefined;
  }
  if (!incomingBody.awaitsContinue) return undefined;
  incomingBody.drop();
  return { end: 'too_large', bytes: Buffer.alloc(0), received: 0, reusable: false };
}

function faultOf(
  end: ReadBody['end'],
  object: object | undefined,
  key: IdempotencyKey,
): ErrorAnswer | undefined {
  if (end === 'too_large') return errors.tooLarge;
  if (end === 'too_slow') return errors.bodyTooSlow;
  if (object === undefined) return errors.notAnObject;
  return key.kind === 'malformed' ? errors.idempotencyKeyInvalid : undefined;
}

function answerStored(
  id: string,
  reply: FastifyReply,
  { lookUps }: Pick<SubmitTools, 'lookUps'>,
  fault?: ErrorAnswer,
): void {
  const data = { request_id: id };
  if (fault !== undefined) {
    reply.code(fault.status).send({ error: fault.error, data });
    return;
  }
  if (lookUps) reply.header('location', `${INGEST_PATH}/${id}`);
  reply.code(202).send({ message: ACCEPTED_MESSAGE, data });
}

const boundFaults = {
  replayed: undefined,
  mismatched: errors.idempotencyMismatch,
  erased: errors.idempotencyErased,
} as const satisfies Record<Bound['kind'], ErrorAnswer | undefined>;

/** Only the first request has a record, so `X-Request-Id` names it. */
function answerBound(
  reply: FastifyReply,
  { kind, first }: Bound,
  tools: SubmitTools,
  { sendsHint }: { readonly sendsHint: boolean },
): void {
  tools.metrics.idempotencyKeys.inc({ result: kind });
  reply.header('x-request-id', first._id);
  if (kind === 'replayed') reply.header('idempotent-replayed', 'true');
  answerStored(first._id, reply, tools, boundFaults[kind]);
  // The first answer may have been a 500, which sends no hint.
  if (kind === 'replayed' && first.state === 'recorded' && sendsHint)
    tools.hints.add(hintFor(first));
}

function receivedOf(request: FastifyRequest, receivedAt: Date): Received {
  return {
    requestId: request.id,
    receivedAt,
    remoteIp: request.client.ip,
    partnerId: request.partnerId,
    keyId: request.keyId,
    test: request.terms.test,
    userAgent: request.headers['user-agent'],
    contentType: request.headers['content-type'],
    traceparent: request.traceparent,
  };
}
