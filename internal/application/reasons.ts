/** Reasons for rejecting an application: codes for programs, sentences for people. */
import { fieldFaults, type Field } from './fields.ts';
import { defined } from '../platform/process/defined.ts';

export const reasonCodes = [
  ...fieldFaults,
  'duplicate_email',
  'duplicate_ein',
  'discarded',
] as const;
export type ReasonCode = (typeof reasonCodes)[number];

/** Why the e-mail to the applicant came back. */
const mailSentences = {
  unknown_mailbox: 'The mailbox does not exist.',
  mailbox_disabled: 'The mailbox takes no e-mail.',
  mailbox_full: 'The mailbox is full.',
  domain_refused: 'The domain of the e-mail address takes no e-mail.',
  policy: 'The mail server of the applicant refused the e-mail by its policy.',
  refused: 'The mail server of the applicant refused the e-mail.',
} as const;
export type MailReasonCode = keyof typeof mailSentences;

/** Partners and support read the message, so it never quotes the value. */
export interface Reason<Code = ReasonCode> {
  readonly field?: Field;
  readonly code: Code;
  readonly message: string;
  readonly duplicateOf?: string;
  readonly samePartner?: true;
}

export function duplicateReason(
  field: 'email' | 'ein',
  duplicateOf: string | undefined,
  samePartner: boolean,
): Reason {
  const name = { email: 'e-mail address', ein: 'EIN' }[field];
  return {
    field,
    code: `duplicate_${field}`,
    message: `An account with this ${name} exists already.`,
    ...defined({ duplicateOf, samePartner: samePartner || undefined }),
  };
}

export const discardedReason: Reason = {
  code: 'discarded',
  message: 'The operator ended this application without processing it.',
};

export type StoredReason = Reason<ReasonCode | MailReasonCode>;

export function mailReason(code: MailReasonCode): StoredReason {
  return { field: 'email', code, message: mailSentences[code] };
}

export const partnerReasonCodes = [
  ...reasonCodes,
  'duplicate',
  ...(Object.keys(mailSentences) as MailReasonCode[]),
] as const;

interface PartnerReason {
  readonly field?: Field;
  readonly code: (typeof partnerReasonCodes)[number];
  readonly message: string;
}

/**
 * Other partners' accounts become one `duplicate`, shown only alone: a faulty application must not
 * reveal whether an EIN is taken.
 */
export function reasonsForPartner(reasons: readonly StoredReason[]): PartnerReason[] {
  const isElsewhere = (reason: StoredReason): boolean =>
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

/** An account of another request that has the same value. */
export interface Holder {
  readonly field: 'email' | 'ein';
  readonly requestId: string;
  readonly samePartner: boolean;
}

/**
 * - `created`: by this attempt.
 * - `own`: created by an earlier attempt of the request.
 */
export type CreationFact =
  | { readonly kind: 'created' | 'own'; readonly accountId: string }
  | { readonly kind: 'taken'; readonly holders: readonly Holder[] };

type Decision =
  | { readonly verdict: 'reject'; readonly reasons: readonly Reason[] }
  | { readonly verdict: 'go_on'; readonly accountId: string };

/** Decides on a valid request by what the creation of its account has found. */
export function decideOnCreation(fact: CreationFact): Decision {
  if (fact.kind !== 'taken') return { verdict: 'go_on', accountId: fact.accountId };
  const reasons = fact.holders.map(({ field, requestId, samePartner }) =>
    duplicateReason(field, requestId, samePartner),
  );
  return { verdict: 'reject', reasons };
}
