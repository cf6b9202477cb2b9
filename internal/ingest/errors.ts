/** Every error answer of the partner port, as `openapi.yaml` and docs/contract.md have them too. */
import { MAX_BODY_BYTES, MAX_IDEMPOTENCY_KEY } from './limits.ts';

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
