/**
 * What is counted of requests: a document for each hour and owner has its minutes, one for each day
 * its hours, and few for each hour have two sums of every partner. One for each process of ingest
 * says until when it lives.
 */
import type { Db } from 'mongodb';
import { isTestOwner } from '../partner/key-terms.ts';
import { DAY_MS, later } from '../platform/process/clock.ts';
import type { IndexDefinition } from '../platform/stores/mongo-indexes.ts';

export const TRAFFIC = 'traffic';

export const trafficCollection = (db: Db) => db.collection<TrafficDocument>(TRAFFIC);

export const MINUTE_MS = 60_000;
export const HOUR_MS = 3_600_000;

/** The owner of all live requests, also of those without a known key. No partner has this name. */
export const EVERYBODY = '*';

/** `chars`: how much of an ISO time names the start of a span. */
export const spans = {
  hour: { ms: HOUR_MS, partMs: MINUTE_MS, chars: 13, keptDays: 8 },
  day: { ms: DAY_MS, partMs: HOUR_MS, chars: 10, keptDays: 400 },
} as const;
export type Span = keyof typeof spans;

type Numbers = Readonly<Record<string, number>>;

/**
 * Of one minute or hour. What is about the end of a request (`ends`, `reasons`) counts in the minute
 * in which the request was received, all else when it happens.
 */
export interface Counts {
  /** Answers to submissions by status; `replayed` is a 202 of an Idempotency-Key again. */
  readonly answers?: Numbers;
  /** All other answers, as to look-ups. */
  readonly reads?: Numbers;
  /** Time from a submission's headers to its 202, in milliseconds: below a bound of `ACCEPT_MS`. */
  readonly accept?: Numbers;
  /** Requests by the last state in which a processor ended them. */
  readonly ends?: Numbers;
  /** By state, then `<field> <code>`; ` <code>` without a field. */
  readonly reasons?: Readonly<Record<string, Numbers>>;
  /** Ends by state, at their own time. */
  readonly finished?: Numbers;
  /** Hand-overs to the relay by result. */
  readonly mails?: Numbers;
  /** Of `EVERYBODY`: the most live requests that waited, by state. */
  readonly waits?: Numbers;
  /** Counts that found no room in memory: the figures of some partners are too low by these. */
  readonly lost?: number;
}

export interface TrafficDocument {
  /** `<span> <start> <owner>`, such as `hour 2026-11-29T13 demo`. */
  readonly _id: string;
  /** By the minute of the hour, or the hour of the day. */
  readonly parts?: Readonly<Record<string, Counts>>;
  /** The number of the last write of each process, so that none counts twice. */
  readonly writes: Numbers;
  readonly expiresAt: Date;
  /** Of a process of ingest: the version of the keys that it uses. */
  readonly keysVersion?: number;
}

/** Bounds of the buckets of `accept`; what takes longer is `more`. */
export const ACCEPT_MS = [
  1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1_000, 1_500, 2_000, 5_000,
] as const;

export const startOf = (ms: number, lengthMs: number): number =>
  Math.floor(ms / lengthMs) * lengthMs;

/** Which partners are worst: of an hour, live requests alone. */
export interface PartnerSums {
  readonly requests: number;
  /** Turned away, at fault, or ended other than completed. */
  readonly failed: number;
}

/** With 10,000 partners a document has some 40 KB, so neither a write nor a read of all is slow. */
export const SUMS_SHARDS = 16;
const SUMS_KEPT_MS = DAY_MS;

/** Where the sums of an hour are: each shard's document has its partners as `parts`. */
export function sumsId(atMs: number, shard: number): string {
  return `sums ${new Date(atMs).toISOString().slice(0, spans.hour.chars)} ${shard}`;
}

export function sumsPlace(atMs: number, partner: string) {
  let hash = 0;
  for (let at = 0; at < partner.length; at += 1) hash = (hash * 31 + partner.charCodeAt(at)) >>> 0;
  return {
    _id: sumsId(atMs, hash % SUMS_SHARDS),
    expiresAt: later(new Date(startOf(atMs, HOUR_MS)), HOUR_MS + SUMS_KEPT_MS),
    // A path is split at dots, and no partner's name has a blank.
    part: partner.replaceAll('.', ' '),
  };
}

export const partnerOfPart = (part: string): string => part.replaceAll(' ', '.');

/** `atMs`: any time in the span. */
export function documentId(span: Span, atMs: number, owner: string): string {
  return `${span} ${new Date(atMs).toISOString().slice(0, spans[span].chars)} ${owner}`;
}

/** Of tests nothing is kept longer than tests. */
export function expiryOf(span: Span, startMs: number, owner: string): Date {
  const { keptDays } = spans[isTestOwner(owner) ? 'hour' : span];
  return later(new Date(startMs), spans[span].ms + keptDays * DAY_MS);
}

/** Reads go by `_id`. */
export const trafficIndexes: readonly IndexDefinition[] = [
  { collection: TRAFFIC, name: 'traffic_expiry', key: { expiresAt: 1 }, expireAfterSeconds: 0 },
];
