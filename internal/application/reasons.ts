/** Why an application is rejected, in codes for programs and sentences for people. */
import { defined } from '../platform/defined.ts';

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
  'discarded',
] as const;
export type ReasonCode = (typeof reasonCodes)[number];

/**
 * One reason. Never quotes the value it is about: reasons are shown to support and, on request, to
 * partners.
 */
export interface Reason {
  /** Absent where it is not about one field. */
  readonly field?: Field;
  readonly code: ReasonCode;
  readonly message: string;
  /** For duplicates: the request that made the account in the way. */
  readonly duplicateOf?: string;
  /** For duplicates: the account in the way came from the same partner. */
  readonly samePartner?: true;
}

export function duplicateReason(
  field: 'email' | 'ein',
  duplicateOf: string,
  samePartner: boolean,
): Reason {
  const holder = { duplicateOf, ...(samePartner ? { samePartner } : {}) };
  return field === 'email'
    ? {
        field,
        code: 'duplicate_email',
        message: 'An account with this e-mail address exists already.',
        ...holder,
      }
    : {
        field,
        code: 'duplicate_ein',
        message: 'An account with this EIN exists already.',
        ...holder,
      };
}

/** An operator ended the application unprocessed (`close`, `erase`). */
export const discardedReason: Reason = {
  code: 'discarded',
  message: 'The operator ended this application without processing it.',
};

/** Every code that a partner may see. */
export const partnerReasonCodes = [...reasonCodes, 'duplicate'] as const;

/** A reason as its partner sees it: without whose request is in the way. */
export interface PartnerReason {
  readonly field?: Field;
  readonly code: (typeof partnerReasonCodes)[number];
  readonly message: string;
}

/**
 * What a partner may see of the reasons. Accounts of other partners make one generic `duplicate`,
 * without a field. It is left out beside any other reason: an application with a known fault must
 * not show whether an EIN is taken elsewhere.
 */
export function reasonsForPartner(reasons: readonly Reason[]): PartnerReason[] {
  const isElsewhere = (reason: Reason): boolean =>
    reason.duplicateOf !== undefined && reason.samePartner !== true;
  const shown = reasons.filter((reason) => !isElsewhere(reason));
  if (shown.length > 0 || reasons.length === 0) {
    return shown.map(({ field, code, message }) => ({
      ...defined({ field }),
      code,
      message,
    }));
  }
  return [{ code: 'duplicate', message: 'An account for this applicant exists already.' }];
}
