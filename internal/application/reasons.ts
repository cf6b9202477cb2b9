/** Why an application is rejected, in codes for programs and sentences for people. */

export const fields = ['email', 'business_name', 'ein'] as const;
export type Field = (typeof fields)[number];

export const reasonCodes = [
  'missing',
  'wrong_type',
  'invalid_format',
  'blank',
  'too_long',
  'duplicate_email',
  'duplicate_ein',
] as const;
export type ReasonCode = (typeof reasonCodes)[number];

/** One reason. Never quotes the value it is about: reasons are shown to support and, on request, to partners. */
export interface Reason {
  readonly field: Field;
  readonly code: ReasonCode;
  readonly message: string;
  /** For duplicates: the request that made the account in the way. */
  readonly duplicateOf?: string;
}

export function duplicateReason(field: 'email' | 'ein', duplicateOf: string): Reason {
  return field === 'email'
    ? { field, code: 'duplicate_email', message: 'An account with this e-mail address exists already.', duplicateOf }
    : { field, code: 'duplicate_ein', message: 'An account with this EIN exists already.', duplicateOf };
}
