/** Recognises one person in a record: in its applicant and in its raw bytes. */
import { normalizeEin, normalizeEmail } from '../application/fields.ts';
import { mentions, type Person } from '../application/find-person.ts';
import { isEmailAddress } from '../application/email-address.ts';
import { claimedIn } from '../application/parse-application.ts';
import type { SubmissionRecord } from '../submission/submission.ts';

/**
 * - `applicant`: the record is theirs;
 * - `mentioned`: it is another applicant's, but its bytes mention them.
 */
export type Relation = 'applicant' | 'mentioned' | 'none';

type Searched = Pick<SubmissionRecord, 'applicant' | 'body'>;

export function relationOf(person: Person, record: Searched): Relation {
  const own = applicantOf(record);
  if (isSame(person, own)) return 'applicant';
  const valid = {
    email: own.email !== undefined && isEmailAddress(own.email),
    ein: own.ein !== undefined && /^[0-9]{9}$/.test(own.ein),
  };
  // A faulty field such as "Jane <jane@x.test>" cannot belong to another person's account.
  const faulty = [valid.email ? '' : own.email, valid.ein ? '' : own.ein].join('\n');
  if (mentions(person, Buffer.from(faulty))) return 'applicant';
  if (record.body === undefined || !mentions(person, record.body.buffer)) return 'none';
  // Without a valid address of its own, the record's bytes name its applicant; likewise the EIN.
  return (person.email === undefined ? valid.ein : valid.email) ? 'mentioned' : 'applicant';
}

/** A waiting record has no applicant yet, so its body is read. */
export function applicantOf(record: Searched): Person {
  const { email, ein } = record.applicant ?? claimedIn(record.body?.buffer ?? new Uint8Array());
  return {
    ...(email === undefined ? {} : { email: normalizeEmail(email) }),
    ...(ein === undefined ? {} : { ein: normalizeEin(ein) }),
  };
}

export function isSame({ email, ein }: Person, owner: Person): boolean {
  return (email !== undefined && owner.email === email) || (ein !== undefined && owner.ein === ein);
}
