/** How stored errors and times read on a screen; times are in UTC. */
import {
  lastFactOf,
  WITH_ERROR,
  type StoredFact,
  type SubmissionRecord,
} from '../../submission/submission.ts';
import type { State } from '../../submission/states.ts';
import { duration } from './terminal.ts';
import { olderFact } from './older-words.ts';

const CAUSES: Readonly<Record<string, string>> = {
  EAUTH: 'the relay refuses our login',
  ECONNECTION: 'the relay cannot be reached',
  ECONNREFUSED: 'the relay cannot be reached',
  ESOCKET: 'the relay cannot be reached',
  EDNS: 'the name of the relay is not found',
  ETIMEDOUT: 'the relay does not answer in time',
  ETLS: 'TLS cannot be agreed on with the relay',
  EPROTOCOL: 'the relay answers with an error',
};

/** `EAUTH AUTH PLAIN 535` → `the relay refuses our login (EAUTH AUTH PLAIN 535)`. */
export function causeInWords(cause: string | undefined): string {
  const [code = ''] = cause?.split(' ') ?? [];
  return `${CAUSES[code] ?? 'the relay could not be used'}${cause === undefined ? '' : ` (${cause})`}`;
}

/** Where a database's error code says more than that there was one. */
const DATABASE_CODES: Readonly<Record<string, string>> = {
  121: 'the database refused the write (code 121, its validation)',
};

/** Of such as `MongoServerError, DocumentValidationFailure, 121`. */
function databaseError(of = ''): string | undefined {
  const [, code] = /^Mongo\w*Error, (?:\w+, )?(\d+)$/.exec(of) ?? [];
  return code && (DATABASE_CODES[code] ?? `the database answered with an error (code ${code})`);
}

/** `stored` keeps the words of the process; a page shows them on hover. */
export function factInWords(stored: StoredFact): string {
  const { code, of, words } = stored.code === undefined ? olderFact(stored.words) : stored;
  if (code === 'relay_unusable') return causeInWords(of);
  if (code === 'workers_died') return 'processors crashed while they worked on it';
  return (code === 'step_failed' && databaseError(of)) || words;
}

/** `last` is the last error of a record in this state, which may be an earlier attempt's. */
export const errorIn = (state: State, last: StoredFact | null | undefined): string | undefined =>
  last && WITH_ERROR.includes(state) ? factInWords(last) : undefined;

/** As stored: the text that a search by reason takes. */
export const storedErrorOf = (
  record: Pick<SubmissionRecord, 'state' | 'lastError' | 'lastFact'>,
): string | undefined =>
  WITH_ERROR.includes(record.state) ? lastFactOf(record)?.words : undefined;

export const errorOf = (
  record: Pick<SubmissionRecord, 'state' | 'lastError' | 'lastFact'>,
): string | undefined => errorIn(record.state, lastFactOf(record));

/** As in "2026-11-21 09:03:11.120". */
export function utc(date: Date): string {
  return date.toISOString().replace('T', ' ').slice(0, -1);
}

/** As in "2026-11-21 09:03:11". */
export function utcSeconds(date: Date): string {
  return utc(date).slice(0, -4);
}

/** As in "3 min 5 s ago" or "in 2 h". */
export function fromNow(date: Date, now: Date): string {
  const distance = date.getTime() - now.getTime();
  return distance > 0 ? `in ${duration(distance)}` : `${duration(-distance)} ago`;
}

/** Entries of the trail by which nothing changed. */
const LOOKS: Readonly<Record<string, string>> = {
  'show --reveal': 'looked at the personal data',
  'erase without --yes': 'looked up what an erasure would take',
};

/** What the trail calls it, in words. */
export const actionWords = (action: string): string => LOOKS[action] ?? action;

export const isLook = (action: string): boolean => action in LOOKS;
