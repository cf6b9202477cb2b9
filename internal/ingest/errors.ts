/**
 * Every error answer of the partner port, as in `openapi.yaml` and docs/contract.md, and answers
 * that do not wait for the body.
 */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { MAX_BODY_BYTES, MAX_IDEMPOTENCY_KEY, RETRY_AFTER_SECONDS } from './bounds.ts';

const TOO_SLOW = 'Request timeout: the request came too slowly and may be sent again';

export const errors = {
  notAnObject: { status: 400, error: 'Request body must be a JSON object' },
  tooLarge: { status: 400, error: `Request body must not exceed ${MAX_BODY_BYTES} bytes` },
  idempotencyKeyInvalid: {
    status: 400,
    error: `Idempotency-Key must be 1 to ${MAX_IDEMPOTENCY_KEY} characters, as a quoted string or without spaces and commas`,
  },
  brokenRequest: { status: 400, error: 'Bad request: not valid HTTP' },
  keyMissing: { status: 401, error: 'Unauthorized: API Key missing' },
  keyInvalid: { status: 401, error: 'Unauthorized: Invalid API Key' },
  partnerInactive: { status: 403, error: 'Unauthorized: Partner account is inactive' },
  notFound: { status: 404, error: 'Not found' },
  requestUnknown: { status: 404, error: 'Not found: no request of yours has this request_id' },
  methodNotAllowed: { status: 405, error: 'Method not allowed: use POST' },
  statusMethodNotAllowed: { status: 405, error: 'Method not allowed: use GET' },
  headTooSlow: { status: 408, error: TOO_SLOW },
  bodyTooSlow: { status: 408, error: TOO_SLOW },
  idempotencyMismatch: { status: 422, error: 'Idempotency-Key was used with another body' },
  idempotencyErased: {
    status: 422,
    error: 'Idempotency-Key was used with a submission that is erased',
  },
  internal: {
    status: 500,
    error: 'Internal error: the submission was not accepted and may be retried',
  },
  // A 500 would tell the partner to submit again.
  statusUnavailable: {
    status: 503,
    error:
      'Status unavailable: the submission itself is not affected; ask again later, do not submit it again',
  },
} as const satisfies Readonly<Record<string, { status: number; error: string }>>;

export type ErrorAnswer = (typeof errors)[keyof typeof errors];

export interface Limit {
  readonly amount: string;
  readonly windowSeconds: number;
  readonly whose: 'one address' | 'this partner';
}

export function tooManyRequests(
  { amount, windowSeconds, whose }: Limit,
  retrySeconds: number,
): string {
  return `Too many requests: at most ${amount} in ${windowSeconds} seconds from ${whose}; retry after ${retrySeconds} seconds`;
}

export const listQueryInvalid = (fault: string): string => `Query parameter ${fault}`;

export const ACCEPTED_MESSAGE = 'Request accepted for processing';

export type AnswerStatus = ErrorAnswer['status'] | 200 | 202 | 429;

export function answerEarly(
  request: FastifyRequest,
  reply: FastifyReply,
  answer: ErrorAnswer,
): void {
  if (answer.status === 401) reply.header('www-authenticate', 'Bearer');
  addRetryAfter(reply, answer);
  sendEarly(request, reply, answer.status, { error: answer.error });
}

/** The connection stays open only if the body arrives within `EARLY_GRACE_MS`. */
export function sendEarly(
  request: FastifyRequest,
  reply: FastifyReply,
  status: AnswerStatus,
  body: object | string,
): void {
  const { incomingBody } = request;
  incomingBody.drop();
  incomingBody.whenNearlyCome((come) => {
    if (!come) closeAfterAnswer(request, reply);
    reply.code(status).send(body);
  });
}

export function closeAfterAnswer({ incomingBody }: FastifyRequest, reply: FastifyReply): void {
  reply.header('connection', 'close');
  incomingBody.closeAfterAnswer();
}

/** Only these two errors are temporary. */
function addRetryAfter(reply: FastifyReply, answer: ErrorAnswer): void {
  if (answer === errors.internal || answer === errors.statusUnavailable) {
    reply.header('retry-after', RETRY_AFTER_SECONDS);
  }
}

export function answerNotAccepted(reply: FastifyReply): void {
  addRetryAfter(reply, errors.internal);
  reply.code(errors.internal.status).send({ error: errors.internal.error });
}
