/** The port for bounces that come later: `POST /bounces`, signed (docs/email.md). */
import { createHmac, timingSafeEqual } from 'node:crypto';
import { fastify, type FastifyError, type FastifyReply, type FastifyRequest } from 'fastify';
import { z } from 'zod';
import { normalizeEmail } from '../application/fields.ts';
import { accountOfMessageId } from '../mail/message.ts';
import { listenHost, urlOf } from '../platform/http/admin-server.ts';
import { Allowance, type Clock } from '../platform/process/clock.ts';
import { withDeadline } from '../platform/process/deadline.ts';
import { defined } from '../platform/process/defined.ts';
import type { Logger } from '../platform/process/log.ts';
import type { ProcessorMetrics, bounceResults } from '../telemetry/metrics.ts';
import type { Account } from '../account/account.ts';
import type { AccountKey, AccountQueries } from '../account/account-store.ts';
import {
  areBouncesAlike,
  planOfBounce,
  reportBounce,
  type LateBounce,
} from '../mail/late-bounce.ts';
import type { OperatorMoves } from '../submission/operator-moves.ts';
import { RECORD_SCHEMA, type SubmissionRecord } from '../submission/submission.ts';
import type { SupportQueries } from '../submission/support-queries.ts';

/** Five hundred bounces with long addresses have half of it. */
const MAX_BODY_BYTES = 262_144;
const MAX_BOUNCES = 500;
/** Bounds the memory for bodies to 16 MiB. */
const MAX_CONNECTIONS = 64;
/** A request and its body must have come by then. */
const RECEIVE_MS = 10_000;
const CHECK_EVERY_MS = 1_000;
/** A signature is good for so long, and for clocks that differ so much. */
const TOLERANCE_MS = 300_000;
/** More than one reports while another waits for the database; all others are answered 429. */
const AT_ONCE = 2;
/** Of one process, signed or not: to check this many of the longest takes a tenth of a second. */
const REQUESTS_PER_SECOND = 50;
/** A stalled database is answered 503; what was begun may be done, and a repeat changes nothing. */
const ANSWER_WITHIN_MS = 15_000;
const AGAIN_AFTER = { limit: 1, later: 60 } as const;

const SIGNATURE = /^t=(\d{1,12})((?:,v1=[0-9a-fA-F]{64}){1,5})$/;
const TEXT_MAX = 998;

const NAMES = ['request_id', 'message_id', 'email'] as const;
const name = z.string().min(1).max(TEXT_MAX).optional();
const bounceSchema = z
  .strictObject({
    request_id: name,
    message_id: name,
    email: name,
    status: z
      .string()
      .regex(/^[245]\.\d{1,3}\.\d{1,3}$/, 'must be like 5.1.1')
      .optional(),
    at: z.iso.datetime({ offset: true, error: 'must be like 2026-11-21T09:00:00Z' }).optional(),
  })
  .refine((bounce) => NAMES.filter((one) => bounce[one] !== undefined).length === 1, {
    error: `needs one of ${NAMES.join(', ')}`,
    abort: true,
  })
  // Without both, a repeat after another e-mail would end that one.
  .refine(({ message_id, at }) => message_id !== undefined || at !== undefined, {
    error: 'needs at, the time of the bounce, where there is no message_id',
  });

const jsonText = z.string().transform((text, context): unknown => {
  try {
    return JSON.parse(text);
  } catch {
    context.addIssue('the body is no JSON');
    return z.NEVER;
  }
});
const reportSchema = jsonText.pipe(
  z.strictObject({ bounces: z.array(bounceSchema.transform(namedOf)).max(MAX_BOUNCES) }),
);

interface BounceServerOptions {
  readonly host: string;
  readonly port: number;
  readonly secrets: readonly string[];
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: Pick<ProcessorMetrics, 'bounces' | 'bounceRequests'>;
  /** False until the process may change records. */
  readonly isOpen: () => boolean;
  readonly report: (bounces: readonly ReportedBounce[]) => Promise<BounceResult[]>;
}

/** Rejects when the address is not available. */
export async function startBounceServer(options: BounceServerOptions) {
  const { secrets, clock, log, metrics, isOpen } = options;
  const app = fastify({
    bodyLimit: MAX_BODY_BYTES,
    connectionTimeout: RECEIVE_MS + ANSWER_WITHIN_MS,
    requestTimeout: RECEIVE_MS,
    forceCloseConnections: 'idle',
    http: { connectionsCheckingInterval: CHECK_EVERY_MS },
  });
  app.server.maxConnections = MAX_CONNECTIONS;
  let busy = 0;
  const allowance = new Allowance(REQUESTS_PER_SECOND, REQUESTS_PER_SECOND, clock);
  const tooMany = (reply: FastifyReply): FastifyReply =>
    refuse(reply, 429, 'too many requests at once', AGAIN_AFTER.limit);

  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', { parseAs: 'buffer' }, (_request, body, done) => done(null, body));
  app.post('/bounces', {
    // Nothing is read of a body that cannot be accepted.
    onRequest: async (request, reply) => {
      // Fastify answers a malformed one 415; the bytes are signed, whatever it says.
      request.headers['content-type'] = 'application/json';
      const fault = faultOfTime(request, clock.now());
      if (!allowance.spend()) await tooMany(reply);
      else if (fault !== undefined) await refuse(reply, 401, fault);
    },
    handler: async (request, reply) => {
      const body = Buffer.isBuffer(request.body) ? request.body : Buffer.alloc(0);
      if (!isSigned(request, body, secrets))
        return refuse(reply, 401, 'Bounce-Signature: no signature is by a secret of ours');
      if (!isOpen()) return refuse(reply, 503, 'the process is starting', AGAIN_AFTER.later);
      if (busy >= AT_ONCE) return tooMany(reply);
      const read = reportSchema.safeParse(body.toString());
      if (!read.success) return refuse(reply, 400, faultIn(read.error));
      busy += 1;
      const reporting = options.report(read.data.bounces).finally(() => (busy -= 1));
      const results = await withDeadline(reporting, ANSWER_WITHIN_MS, 'reporting bounces').catch(
        (error: unknown) => log.warn({ err: error }, 'bounces could not be reported'),
      );
      if (results === undefined)
        return refuse(reply, 503, 'the database does not answer', AGAIN_AFTER.later);
      for (const result of results) metrics.bounces.inc({ result });
      log.info({ bounces: results.length, results: [...new Set(results)] }, 'bounces reported');
      if (!results.includes('later')) return reply.send({ results });
      reply.code(503).header('retry-after', AGAIN_AFTER.later);
      return reply.send({ error: 'send all again: some cannot be reported yet', results });
    },
  });
  app.setNotFoundHandler((_request, reply) => refuse(reply, 404, 'not found; try POST /bounces'));
  app.setErrorHandler(({ statusCode = 500, code }: FastifyError, _request, reply) =>
    code === 'FST_ERR_CTP_BODY_TOO_LARGE'
      ? refuse(reply, 413, `the body has more than ${MAX_BODY_BYTES} bytes`)
      : refuse(reply, statusCode, 'the request cannot be read'),
  );
  app.addHook('onResponse', (_request, { statusCode }, done) => {
    metrics.bounceRequests.inc({ answer: answerOf(statusCode) });
    done();
  });
  await app.listen({ host: listenHost(options.host), port: options.port });
  return { url: urlOf(app.server), close: () => app.close() };
}

const answerOf = (status: number) => {
  if (status < 300) return 'reported';
  if (status === 401) return 'not_signed';
  if (status === 429) return 'limited';
  return status < 500 ? 'faulty' : 'later';
};

function refuse(
  reply: FastifyReply,
  status: number,
  error: string,
  afterSeconds?: number,
): FastifyReply {
  if (afterSeconds !== undefined) reply.header('retry-after', afterSeconds);
  return reply.code(status).send({ error });
}

/** Of Bounce-Signature. */
function signatureOf({ headers }: FastifyRequest) {
  const [, seconds, signatures = ''] = SIGNATURE.exec(String(headers['bounce-signature'])) ?? [];
  return { seconds, given: signatures.split(',v1=').slice(1) };
}

function faultOfTime(request: FastifyRequest, now: Date): string | undefined {
  const { seconds } = signatureOf(request);
  if (seconds === undefined) return 'Bounce-Signature: must be like t=SECONDS,v1=HEX';
  const aheadMs = Number(seconds) * 1_000 - now.getTime();
  if (Math.abs(aheadMs) <= TOLERANCE_MS) return undefined;
  return `Bounce-Signature: t is ${Math.round(aheadMs / 1_000)} s from our time`;
}

/** Compares every pair, so that the time tells nothing. */
function isSigned(request: FastifyRequest, body: Buffer, secrets: readonly string[]): boolean {
  const { seconds, given } = signatureOf(request);
  return secrets
    .map((secret) => createHmac('sha256', secret).update(`${seconds}.`).update(body).digest())
    .flatMap((wanted) => given.map((one) => timingSafeEqual(Buffer.from(one, 'hex'), wanted)))
    .includes(true);
}

function faultIn({ issues: [first] }: z.ZodError): string {
  const { path, message } = first!;
  return path.length === 0 ? message : `${path.join('.')}: ${message}`;
}

function namedOf(given: z.output<typeof bounceSchema>): ReportedBounce {
  const { request_id: id, message_id: messageId, email = '', status, at } = given;
  const about = defined({ status, at: at === undefined ? undefined : new Date(at) });
  if (id !== undefined) return { by: 'requestId', value: id, ...about };
  if (messageId === undefined)
    return { by: 'emailNormalized', value: normalizeEmail(email), ...about };
  const mail = accountOfMessageId(messageId);
  return { by: '_id', value: mail?.accountId ?? '', ...about, ...defined({ mail }) };
}

/* Late bounces that a program reports: whose e-mails they are about, and what follows. */

export type BounceResult = (typeof bounceResults)[number];

export interface ReportedBounce extends LateBounce {
  /** What names the account. */
  readonly by: AccountKey;
  readonly value: string;
}

interface ReportTools {
  readonly accounts: Pick<AccountQueries, 'having'>;
  readonly submissions: Pick<SupportQueries, 'ofIds' | 'bouncedWith' | 'countCompleted'>;
  readonly moves: Pick<OperatorMoves, 'move'>;
  readonly clock: Pick<Clock, 'now'>;
}

const REPORTER = 'POST /bounces';
const MOVES_AT_ONCE = 16;

/** Durable once it resolves; a result for each bounce, in their order. */
export async function reportBounces(
  bounces: readonly ReportedBounce[],
  tools: ReportTools,
  isRepeat = false,
): Promise<BounceResult[]> {
  const values: { [Field in AccountKey]?: string[] } = {};
  for (const { by, value } of bounces) (values[by] ??= []).push(value);
  const accounts = await tools.accounts.having(values);
  const ids = accounts.map(({ requestId }) => requestId);
  const found = await tools.submissions.ofIds(ids, { bodies: false });
  const records = new Map(found.map((record) => [record._id, record]));
  const subjects = bounces.map((bounce) => {
    const account = accounts.find((one) => one[bounce.by] === bounce.value);
    return { bounce, account, record: records.get(account?.requestId ?? '') };
  });
  const alike = await statusesAlike(subjects, tools);
  const results: BounceResult[] = [];
  const isFirst = ({ account }: Subject, at: number): boolean =>
    subjects.findIndex((one) => one.account === account) === at;
  const reportAt = async (at: number): Promise<void> => {
    const { bounce, ...subject } = subjects[at]!;
    const judged = { ...bounce, alike: alike.has(bounce.status) };
    const result = await reportOne({ ...subject, bounce: judged }, tools);
    // Such as by the same bounce, which may come several times at once.
    const again = (): Promise<BounceResult[]> => reportBounces([bounce], tools, true);
    if (result !== 'changed') results[at] = result;
    else results[at] = isRepeat ? 'later' : (await again())[0]!;
  };
  // Of an e-mail that is named several times, the first counts.
  const { firsts = [], repeats = [] } = Object.groupBy(subjects.keys(), (at) =>
    isFirst(subjects[at]!, at) ? 'firsts' : 'repeats',
  );
  for (const all of [firsts, repeats])
    for (let from = 0; from < all.length; from += MOVES_AT_ONCE)
      await Promise.all(all.slice(from, from + MOVES_AT_ONCE).map(reportAt));
  return results;
}

/** What a bounce is about. */
interface Subject {
  readonly bounce: ReportedBounce;
  readonly account: Account | undefined;
  readonly record: SubmissionRecord | undefined;
}

async function statusesAlike(subjects: readonly Subject[], { submissions, clock }: ReportTools) {
  const final = subjects.filter(
    ({ bounce, account, record }) =>
      record !== undefined &&
      record.test !== true &&
      planOfBounce(record, account, bounce).to === 'undeliverable',
  );
  const alike = new Set<string | undefined>();
  for (const [status, all] of Map.groupBy(final, ({ bounce }) => bounce.status)) {
    const mails = all.flatMap(({ record }) => record ?? []);
    if (await areBouncesAlike(status, mails, clock.now(), submissions)) alike.add(status);
  }
  return alike;
}

async function reportOne(
  { bounce, account, record }: Subject,
  { moves }: ReportTools,
): Promise<BounceResult | 'changed'> {
  if (account === undefined) return 'unknown';
  if (record === undefined) return 'not_possible';
  if (record.schema > RECORD_SCHEMA) return 'later';
  const plan = planOfBounce(record, account, bounce);
  if (plan.nothing !== undefined) return 'repeated';
  if (plan.to === undefined) return plan.later === true ? 'later' : 'not_possible';
  return (await reportBounce(record, bounce, REPORTER, moves)) ? plan.to : 'changed';
}
