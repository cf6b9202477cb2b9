/** Recognising one person in a record: in its applicant, and in its raw bytes. Pure. */
import { normalizeEin, normalizeEmail } from '../application/identity.ts';
import { mentions, type Person } from '../application/mentions.ts';
import { isEmailAddress } from '../application/email-address.ts';
import { claimedIn } from '../application/parse-application.ts';
import type { Account } from '../account/account.ts';
import type { SubmissionRecord } from '../submission/submission.ts';

/**
 * What a record has to do with the person:
 * - `applicant`: it is theirs;
 * - `mentioned`: it is another applicant's, and its bytes mention them.
 */
export type Relation = 'applicant' | 'mentioned' | 'none';

type Searched = Pick<SubmissionRecord, 'applicant' | 'body'>;

export function relationOf(person: Person, record: Searched): Relation {
  const own = applicantOf(record);
  if (person.email !== undefined && own.email === person.email) return 'applicant';
  if (person.ein !== undefined && own.ein === person.ein) return 'applicant';
  const valid = {
    email: own.email !== undefined && isEmailAddress(own.email),
    ein: own.ein !== undefined && /^[0-9]{9}$/.test(own.ein),
  };
  // Such as "Jane <jane@x.test>": a faulty field makes no account of anybody else's.
  const faulty = [valid.email ? '' : own.email, valid.ein ? '' : own.ein].join('\n');
  if (mentions(person, Buffer.from(faulty))) return 'applicant';
  if (record.body === undefined || !mentions(person, record.body.buffer)) return 'none';
  // Without an address of its own, the address in the bytes is the record's; likewise the EIN.
  return (person.email === undefined ? valid.ein : valid.email) ? 'mentioned' : 'applicant';
}

/** As the processor understood the record, or would: a record that waits has no applicant yet. */
export function applicantOf(record: Searched): Person {
  const { email, ein } = record.applicant ?? claimedIn(record.body?.buffer ?? new Uint8Array());
  return {
    ...(email === undefined ? {} : { email: normalizeEmail(email) }),
    ...(ein === undefined ? {} : { ein: normalizeEin(ein) }),
  };
}

/** Whether the account is the person's, also if it was released. */
export function isAccountOf(person: Person, account: Account): boolean {
  const { email, ein } = account.released ?? account;
  return (
    (person.email !== undefined && normalizeEmail(email) === person.email) ||
    (person.ein !== undefined && ein === person.ein)
  );
}
