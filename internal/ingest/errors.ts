/** Every error answer of the partner port. */
import { MAX_BODY_BYTES, MAX_IDEMPOTENCY_KEY } from './limits.ts';

const TOO_SLOW = 'Request timeout: the request came too slowly and may be sent again';

export type OperationName = 'submitApplication' | 'lookUpStatus' | 'listSubmissions';

export interface KnownError {
  readonly status: number;
  readonly error: string;
  /** For the OpenAPI document. */
  readonly when: string;
  /** Who answers it. */
  readonly of: readonly OperationName[];
  /** The request has a record, whose id is in the body. */
  readonly isRecorded?: true;
}

const submit = ['submitApplication'] as const;
const reads = ['lookUpStatus', 'listSubmissions'] as const;
export const every = [...submit, ...reads] as const;

export const errors = {
  notAnObject: {
    status: 400,
    error: 'Request body must be a JSON object',
    when: 'The body is not one JSON object. The request is recorded all the same.',
    of: submit,
    isRecorded: true,
  },
  tooLarge: {
    status: 400,
    error: `Request body must not exceed ${MAX_BODY_BYTES} bytes`,
    when: 'The body is too large. The request is recorded with its beginning.',
    of: submit,
    isRecorded: true,
  },
  idempotencyKeyInvalid: {
    status: 400,
    error: `Idempotency-Key must be 1 to ${MAX_IDEMPOTENCY_KEY} characters, as a quoted string or without spaces and commas`,
    when: 'The `Idempotency-Key` is malformed. The request is recorded all the same.',
    of: submit,
    isRecorded: true,
  },
  listQueryInvalid: {
    status: 400,
    error:
      'Query may have since, until, state, cursor and idempotency_key, each once and well-formed',
    when: 'A parameter is unknown, repeated or malformed.',
    of: ['listSubmissions'],
  },
  brokenRequest: {
    status: 400,
    error: 'Bad request: not valid HTTP',
    when: 'What came is no HTTP/1.1 or HTTP/1.0, or too large to become a request. Nothing is recorded.',
    of: every,
  },
  keyMissing: {
    status: 401,
    error: 'Unauthorized: API Key missing',
    when: 'No `Authorization: Bearer` header was sent.',
    of: every,
  },
  keyInvalid: {
    status: 401,
    error: 'Unauthorized: Invalid API Key',
    when: 'The key is not recognized.',
    of: every,
  },
  partnerInactive: {
    status: 403,
    error: 'Unauthorized: Partner account is inactive',
    when: 'The partner account has been deactivated.',
    of: every,
  },
  notFound: {
    status: 404,
    error: 'Not found',
    when: 'There is nothing at this path: the address is wrong, or the operation is switched off.',
    of: reads,
  },
  requestUnknown: {
    status: 404,
    error: 'Not found: no request of yours has this request_id',
    when: 'No request of this partner has this id. Requests of other partners are not told apart from none.',
    of: ['lookUpStatus'],
  },
  methodNotAllowed: {
    status: 405,
    error: 'Method not allowed: use POST',
    when: 'Any other method.',
    of: submit,
  },
  statusMethodNotAllowed: {
    status: 405,
    error: 'Method not allowed: use GET',
    when: 'Any other method.',
    of: reads,
  },
  headTooSlow: {
    status: 408,
    error: TOO_SLOW,
    when: 'The headers came too slowly. Nothing is recorded. It may be sent again.',
    of: every,
  },
  bodyTooSlow: {
    status: 408,
    error: TOO_SLOW,
    when: 'The body came too slowly. The request is recorded with what came, and is not processed. It may be sent again.',
    of: submit,
    isRecorded: true,
  },
  idempotencyMismatch: {
    status: 422,
    error: 'Idempotency-Key was used with another body',
    when: 'An earlier request of this partner had the same `Idempotency-Key` and another body. `request_id` is that of the earlier one.',
    of: submit,
    isRecorded: true,
  },
  idempotencyErased: {
    status: 422,
    error: 'Idempotency-Key was used with a submission that is erased',
    when: 'The submission with this `Idempotency-Key` is erased, so that nobody can compare the bodies. `request_id` is its own.',
    of: submit,
    isRecorded: true,
  },
  internal: {
    status: 500,
    error: 'Internal error: the submission was not accepted and may be retried',
    when: 'The submission could not be made durable in time, or the API keys are not loaded yet. It was not accepted and may be retried safely.',
    of: submit,
  },
  // A 500 would tell the partner to submit again.
  statusUnavailable: {
    status: 503,
    error:
      'Status unavailable: the submission itself is not affected; ask again later, do not submit it again',
    when: 'The state could not be read in time, or the API keys are not loaded yet. This says nothing about the submission.',
    of: reads,
  },
} as const satisfies Readonly<Record<string, KnownError>>;

export type ErrorAnswer = (typeof errors)[keyof typeof errors];

export interface Limit {
  /** For example `5 megabytes`. */
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

export const ACCEPTED_MESSAGE = 'Request accepted for processing';
