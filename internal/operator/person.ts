/** Recognising one person in a record: in its applicant, and in raw bytes of any kind. Pure. */
import { normalizeEin, normalizeEmail } from '../application/identity.ts';
import { claimedIn, parseJsonObject } from '../application/parse-application.ts';
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
 * - `mentioned`: it is another applicant's, and its bytes mention them.
 */
export type Relation = 'applicant' | 'mentioned' | 'none';

type Searched = Pick<SubmissionRecord, 'applicant' | 'body'>;

export function relationOf(person: Person, record: Searched): Relation {
  const { email, ein } = applicantOf(record);
  if (person.email !== undefined && email === person.email) return 'applicant';
  if (person.ein !== undefined && ein === person.ein) return 'applicant';
  if (record.body === undefined || !mentions(person, record.body.buffer)) return 'none';
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
 * Whether bytes hold the address or the EIN, in whatever a confused partner may have sent: JSON with escapes, a form,
 * UTF-16, broken text. As a word of its own: ann@x.com is not found in joann@x.com, nor nine digits in twelve.
 */
export function mentions(person: Person, body: Uint8Array): boolean {
  const bytes = Buffer.from(body.buffer, body.byteOffset, body.byteLength);
  // Without its zero bytes, UTF-16 reads like Latin-1.
  const texts = [bytes.toString('utf8'), bytes.toString('latin1').replaceAll('\0', '')];
  const json = parseJsonObject(body);
  if (json !== undefined) texts.push(JSON.stringify(json));
  const readings = texts.flatMap((text) => [text, decodeForm(text)]).map((text) => unescape(text).toLowerCase());
  return patternsOf(person).some((pattern) => readings.some((text) => pattern.test(text)));
}

function patternsOf({ email, ein }: Person): RegExp[] {
  const patterns: RegExp[] = [];
  if (email !== undefined) {
    patterns.push(new RegExp(`(?<![\\w.+'-])${escapePattern(email)}(?![a-z0-9-]|\\.[a-z0-9])`));
  }
  if (ein !== undefined) {
    patterns.push(new RegExp(`(?<!\\d)${ein.split('').join('[\\s-]?')}(?!\\d)`));
  }
  return patterns;
}

/** `jane%40example.com` of a form, also where other escapes are broken. */
function decodeForm(text: string): string {
  return text.replace(/%([0-9a-f]{2})/gi, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
}

/** `jane\u0040example.com` of JSON that is broken somewhere else. */
function unescape(text: string): string {
  return text.replace(/\\u([0-9a-f]{4})/gi, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
}

function escapePattern(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&');
}
