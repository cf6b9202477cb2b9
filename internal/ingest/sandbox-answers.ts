/** Plays the endings that a submission with a test key asks for and that ingest decides. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { TestEnding } from '../application/sandbox-endings.ts';
import { ownerName } from '../partner/key-terms.ts';
import { defined } from '../platform/process/defined.ts';
import { idempotencyDigest, FIRST_SIGHT_GRACE_MS } from '../submission/submission.ts';
import { answerNotAccepted, closeAfterAnswer, type ErrorAnswer, errors } from './errors.ts';
import { type Limits, OverLimit } from './limit-policy.ts';

/** What a test that is answered 429 on demand is told to wait. */
const RETRY_MS = 1_000;
/** How long failed attempts count. */
const ATTEMPTS_MS = 3_600_000;
/** Requests with an Idempotency-Key, within that time; each may keep a key of 200 bytes in Redis. */
const ATTEMPTS_OF_PARTNER = 1_000;
const ATTEMPTS_IN_ALL = 20_000;
/** After a 429 that held: how long submissions are then accepted. */
const OPEN_MS = 60_000;

interface Submission {
  readonly idempotencyKey: string | undefined;
  readonly request: FastifyRequest;
  readonly reply: FastifyReply;
  readonly limits: Pick<Limits, 'ofAddress' | 'countTest'>;
}

interface PlayedEnding {
  /** It is answered and recorded as a request with this fault. */
  readonly fault?: ErrorAnswer;
  /** When reconcile first looks; no hint is sent. */
  readonly dueInMs?: number;
  /** It is accepted, but the connection is cut in place of the answer. */
  readonly losesAnswer?: true;
}

/** `answered`: without a record. Throws `OverLimit` for a 429. Either frees the body's memory. */
export async function playEnding(
  ending: TestEnding,
  submission: Submission,
): Promise<PlayedEnding | 'answered'> {
  if (await answersAtOnce(ending, submission)) return 'answered';
  const { answer, fault, waitsMs } = ending;
  // As after a body that really was too large or too slow.
  if (answer === 400 || answer === 408) closeAfterAnswer(submission.request, submission.reply);
  return defined({
    fault: fault && errors[fault],
    dueInMs: waitsMs === undefined ? undefined : waitsMs - FIRST_SIGHT_GRACE_MS,
    losesAnswer: answer === 'none' ? (true as const) : undefined,
  });
}

async function answersAtOnce(
  { answer, holdsMs, attempts }: TestEnding,
  { idempotencyKey, request, reply, limits }: Submission,
): Promise<boolean> {
  const owner = ownerName(request.partnerId, request.terms);
  if (answer === 403) {
    request.incomingBody.freeMemory();
    const { status, error } = errors.partnerInactive;
    reply.code(status).send({ error });
    return true;
  }
  if (answer === 429) {
    if (holdsMs === undefined) throw limited(RETRY_MS);
    const { ttl } = await limits.countTest(`${owner} 429`, holdsMs + OPEN_MS);
    if (ttl > OPEN_MS) throw limited(ttl - OPEN_MS);
  }
  if (answer !== 500) return false;
  if (attempts !== undefined) {
    // Without a key nothing says which requests are attempts of one submission.
    const digest = (await hasRoom()) && idempotencyDigest(owner, idempotencyKey!);
    const { current } = await limits.countTest(digest || `${owner} 500`, ATTEMPTS_MS);
    if (digest ? current > attempts : current % (attempts + 1) === 0) return false;
  }
  request.incomingBody.freeMemory();
  answerNotAccepted(reply);
  return true;

  /** Whether its attempts count by its key. Beyond a bound they count as without one. */
  async function hasRoom(): Promise<boolean> {
    if (idempotencyKey === undefined) return false;
    const ofPartner = await limits.countTest(`${owner} 501`, ATTEMPTS_MS);
    if (ofPartner.current > ATTEMPTS_OF_PARTNER) return false;
    return (await limits.countTest('501', ATTEMPTS_MS)).current <= ATTEMPTS_IN_ALL;
  }

  function limited(retryMs: number): OverLimit {
    request.incomingBody.freeMemory();
    const over = new OverLimit(limits.ofAddress, retryMs);
    reply.header('x-ratelimit-remaining', 0);
    reply.header('x-ratelimit-reset', over.retrySeconds);
    return over;
  }
}
