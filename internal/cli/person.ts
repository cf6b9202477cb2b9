/** Recognising one person in a record: in its applicant, and in raw bytes of any kind. Pure. */
import { normalizeEin, normalizeEmail } from '../application/identity.ts';
import { legible } from '../application/legible.ts';
import { claimedIn } from '../application/parse-application.ts';
import type { Account } from '../account/account.ts';
import type { SubmissionRecord } from '../submission/submission.ts';

/** Whoever has this address or this EIN, both as they are compared. */
export interface Person {
  readonly email?: string;
  readonly ein?: string;
}

/**
 * What a record has to do with the person:
 * - `applicant`: it is theirs;
 * - `mentioned`: it is another applicant's, and its bytes mention them;
 * - `unreadable`: its bytes cannot be searched, so they may mention anyone.
 */
export type Relation = 'applicant' | 'mentioned' | 'unreadable' | 'none';

type Searched = Pick<SubmissionRecord, 'applicant' | 'body'>;

export function relationOf(person: Person, record: Searched): Relation {
  const { email, ein } = applicantOf(record);
  if (person.email !== undefined && email === person.email) return 'applicant';
  if (person.ein !== undefined && ein === person.ein) return 'applicant';
  const found = record.body === undefined ? 'no' : mentions(person, record.body.buffer);
  if (found !== 'yes') return found === 'no' ? 'none' : 'unreadable';
  return email === undefined && ein === undefined ? 'applicant' : 'mentioned';
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

/**
 * Whether bytes hold the address or the EIN, in whatever a confused partner may have sent. As a word of its own:
 * ann@x.com is not found in joann@x.com, nor nine digits in twelve. `unreadable` when a part cannot be searched and
 * the rest does not hold them.
 */
export function mentions(person: Person, body: Uint8Array): 'yes' | 'no' | 'unreadable' {
  const patterns = patternsOf(person);
  const { texts, unreadable } = legible(body);
  if (patterns.some((pattern) => texts.some((text) => pattern.test(text)))) return 'yes';
  return unreadable === undefined ? 'no' : 'unreadable';
}

function patternsOf({ email, ein }: Person): RegExp[] {
  const patterns: RegExp[] = [];
  if (email !== undefined) {
    const address = escapePattern(email.normalize('NFKC'));
    patterns.push(new RegExp(`(?<![\\w.+'-])${address}(?![a-z0-9-]|\\.[a-z0-9])`));
  }
  if (ein !== undefined) {
    const digits = escapePattern(ein).replace(/(?<=[0-9])(?=[0-9])/g, '[\\s\\p{Pd}]?');
    patterns.push(new RegExp(`(?<!\\d)${digits}(?!\\d)`, 'u'));
  }
  return patterns;
}

function escapePattern(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&');
}
