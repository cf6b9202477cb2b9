/** Answers the tests whose EIN asks for an answer without a record. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { TestEnding } from '../application/sandbox-endings.ts';
import { ownerName } from '../partner/mode.ts';
import { idempotencyDigest } from '../submission/idempotency.ts';
import { answerNotAccepted, errors } from './errors.ts';
import { OverLimit, type Limits } from './limit-policy.ts';

/** What a test that is answered 429 on demand is told to wait. */
const RETRY_MS = 1_000;
/** How long failed attempts count. */
const ATTEMPTS_MS = 3_600_000;
/** After a 429 that held: how long submissions are then accepted. */
const OPEN_MS = 60_000;

/** False if the submission goes on; else its body is released, also where a 429 is thrown. */
export async function playEnding(
  ending: TestEnding,
  idempotencyKey: string | undefined,
  request: FastifyRequest,
  reply: FastifyReply,
  limits: Pick<Limits, 'ofAddress' | 'countTest'>,
): Promise<boolean> {
  const { answer, holdsMs, attempts } = ending;
  const owner = ownerName(request.partnerId, request.terms);
  if (answer === 403) {
    request.incomingBody.release();
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
    const digest = idempotencyKey && idempotencyDigest(owner, 'submitApplication', idempotencyKey);
    const { current } = await limits.countTest(digest ?? `${owner} 500`, ATTEMPTS_MS);
    if (digest ? current > attempts : current % (attempts + 1) === 0) return false;
  }
  request.incomingBody.release();
  answerNotAccepted(reply);
  return true;

  function limited(retryMs: number): OverLimit {
    request.incomingBody.release();
    const over = new OverLimit(limits.ofAddress, retryMs);
    reply.header('x-ratelimit-remaining', 0);
    reply.header('x-ratelimit-reset', over.retrySeconds);
    return over;
  }
}
