/** Why an application is rejected, in codes for programs and sentences for people. */

export type Field = 'email' | 'business_name' | 'ein';

/** One reason. Never quotes the value it is about: reasons are shown to support and, on request, to partners. */
export interface Reason {
  readonly field: Field;
  readonly code:
    'missing' | 'wrong_type' | 'invalid_format' | 'blank' | 'too_long' | 'duplicate_email' | 'duplicate_ein';
  readonly message: string;
  /** For duplicates: the request that made the account in the way. */
  readonly duplicateOf?: string;
}

export function duplicateReason(field: 'email' | 'ein', duplicateOf: string): Reason {
  return field === 'email'
    ? { field, code: 'duplicate_email', message: 'An account with this e-mail address exists already.', duplicateOf }
    : { field, code: 'duplicate_ein', message: 'An account with this EIN exists already.', duplicateOf };
}
