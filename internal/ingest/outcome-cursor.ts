/**
 * Where a partner's program is in its outcomes: what it was given last, and what it was given of
 * the time before that in which an outcome may still come late.
 */
import { hash } from 'node:crypto';
import type { OutcomeMark, OutcomePlace } from '../submission/status-reader.ts';
import { requestId } from './contract.ts';

/**
 * How much older an outcome may be than those that were readable before it: a minute between the
 * clocks of two database servers, 10 s for a write, and some for a process that was paused.
 */
export const REACH_MS = 90_000;

export interface OutcomeCursor {
  readonly place: OutcomePlace;
  /** All outcomes before this time were given. */
  readonly givenMs: number;
  /** Of those since `givenMs`: how many were given, and a digest of which. */
  readonly count: number;
  readonly digest: bigint;
}

export const cursorAt = (ms: number): OutcomeCursor => ({
  place: { ms, id: '' },
  givenMs: ms,
  count: 0,
  digest: 0n,
});

/** With `marks` given too, in any order; each only once. */
export function withGiven(cursor: OutcomeCursor, marks: readonly OutcomeMark[]): OutcomeCursor {
  const counted = marks.filter(({ stateAt }) => stateAt.getTime() >= cursor.givenMs);
  return {
    ...cursor,
    count: cursor.count + counted.length,
    digest: counted.reduce((digest, mark) => digest ^ digestOf(mark), cursor.digest),
  };
}

/** Whether exactly these were given up to the cursor's place. */
export function areGiven({ givenMs, count, digest }: OutcomeCursor, marks: readonly OutcomeMark[]) {
  const there = withGiven(cursorAt(givenMs), marks);
  return there.count === count && there.digest === digest;
}

const digestOf = ({ _id, state, stateAt }: OutcomeMark): bigint =>
  hash('sha256', `${_id} ${state} ${stateAt.getTime()}`, 'buffer').readBigUInt64BE();

const PREFIX = 'out_';
/** Not secret: it only finds mistakes, since no cursor leads to another partner's outcomes. */
const CHECK_BYTES = 6;

/** Only its owner can use it. */
export function cursorText(owner: string, cursor: OutcomeCursor): string {
  const { place, givenMs, count, digest } = cursor;
  const text = [place.ms, place.id, givenMs, count, digest].join(' ');
  const check = hash('sha256', `${owner}\n${text}`, 'buffer').subarray(0, CHECK_BYTES);
  return PREFIX + Buffer.concat([check, Buffer.from(text)]).toString('base64url');
}

/** A wider one would make a read long. */
const WINDOW_MAX_MS = 2 * REACH_MS;
const MAX_MS = 8.64e15;
const isTime = (ms: number): boolean => Number.isInteger(ms) && Math.abs(ms) <= MAX_MS;

/** Undefined unless `cursorText` makes this text for the owner. */
export function readCursor(owner: string, given: string): OutcomeCursor | undefined {
  const bytes = Buffer.from(given.slice(PREFIX.length), 'base64url');
  const fields = bytes.subarray(CHECK_BYTES).toString('latin1').split(' ');
  const [ms, id = '', givenMs, count, digest = ''] = fields;
  if (!/^\d{1,20}$/.test(digest)) return undefined;
  const cursor = {
    place: { ms: Number(ms), id },
    givenMs: Number(givenMs),
    count: Number(count),
    digest: BigInt(digest),
  };
  const isValid =
    isTime(cursor.place.ms) &&
    isTime(cursor.givenMs) &&
    cursor.place.ms - cursor.givenMs <= WINDOW_MAX_MS &&
    Number.isSafeInteger(cursor.count) &&
    (id === '' || requestId.safeParse(id).success) &&
    cursorText(owner, cursor) === given;
  return isValid ? cursor : undefined;
}
