/** Why an application was rejected or its e-mail came back, in people's words. */
import { bodyFields, type BodyField } from '../../application/fields.ts';
import type { partnerReasonCodes } from '../../application/reasons.ts';

/** By code, or by field and code; `@` stands for the field. */
const WORDS = {
  missing: '@ missing',
  wrong_type: '@ not sent as text',
  invalid_format: '@ not valid',
  'ein invalid_format': 'EIN without nine digits',
  blank: '@ without a letter or digit',
  too_long: '@ too long',
  duplicate_email: 'e-mail address has an account already',
  duplicate_ein: 'EIN has an account already',
  duplicate: 'applicant has an account already',
  discarded: 'ended by an operator',
  unknown_mailbox: 'mailbox does not exist',
  mailbox_disabled: 'mailbox takes no e-mail',
  mailbox_full: 'mailbox full',
  domain_refused: 'domain takes no e-mail',
  policy: 'refused by the policy of its mail server',
  refused: 'refused by its mail server',
} as const satisfies Readonly<Record<(typeof partnerReasonCodes)[number], string>> &
  Readonly<Record<string, string>>;

interface NamedReason {
  readonly field?: string | undefined;
  readonly code: string;
}

/** As programs name it, such as "ein: invalid_format". */
export const reasonName = ({ field, code }: NamedReason): string =>
  field ? `${field}: ${code}` : code;

/** As in "EIN without nine digits"; the name of one that only another version knows. */
export function reasonInWords({ field = '', code }: NamedReason): string {
  const all: Readonly<Record<string, string>> = WORDS;
  const found = all[`${field} ${code}`] ?? all[code];
  if (found === undefined || (field === '' && found.includes('@')))
    return reasonName({ field, code });
  return capital(found.replace('@', fieldInWords(field)));
}

/** As in "e-mail address". */
export function fieldInWords(field: string): string {
  if (field === 'email') return 'e-mail address';
  const known: readonly BodyField[] = Object.values(bodyFields);
  return known.find(({ name }) => name === field)?.label ?? field.replaceAll('_', ' ');
}

export const capital = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);
