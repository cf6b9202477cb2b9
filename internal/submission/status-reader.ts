/** Reads what a partner may see of its own requests: by id, as a list, and as outcomes. */
import type { Collection, Db, Filter } from 'mongodb';
import { ownerName, type Mode } from '../partner/key-terms.ts';
import { later } from '../platform/process/clock.ts';
import { withDeadline } from '../platform/process/deadline.ts';
import { defined } from '../platform/process/defined.ts';
import { firstIdAt } from '../platform/stores/ids.ts';
import { newestOf, tookTooLong, tooLong } from '../platform/stores/mongo-read.ts';
import {
  idempotencyDigest,
  live,
  submissionCollection,
  type SubmissionRecord,
} from './submission.ts';
import { endStates, type State } from './states.ts';

export const LIST_PAGE = 100;
/** The server ends a read this long before its caller gives up, so that no read is abandoned. */
const ANSWER_MS = 300;
/** Records read for one page of one state: at most 32 MB with bodies. */
const LIST_LOOKED_AT = 500;
/** Id and `receivedAt` may differ: receiving takes up to 20 s, and clocks differ. */
const ID_AND_RECEIPT_MS = 60_000;

const shown = {
  partnerId: 1,
  test: 1,
  receivedAt: 1,
  state: 1,
  stateAt: 1,
  reasons: 1,
  'applicant.email': 1,
  'applicant.ein': 1,
} as const;
// A failover must not roll back what a partner has read.
export const reading = { readConcern: 'majority', projection: shown } as const;
export type StatusRecord = Pick<
  SubmissionRecord,
  '_id' | 'partnerId' | 'test' | 'receivedAt' | 'state' | 'stateAt' | 'reasons' | 'applicant'
>;

export interface ListQuery {
  readonly partnerId: string;
  /** Lists tests, else live requests. */
  readonly test?: true | undefined;
  /** Bound the time of receipt; `until` is excluded. */
  readonly since?: Date | undefined;
  readonly until?: Date | undefined;
  readonly states?: readonly State[] | undefined;
  /** Lists only older ids. */
  readonly before?: string | undefined;
  readonly idempotencyKey?: string | undefined;
}

export interface ListPage {
  readonly records: readonly StatusRecord[];
  /** The `before` of the next page; absent on the last page. */
  readonly next?: string;
}

export class StatusReader {
  readonly #collection: Collection<SubmissionRecord>;

  /** Needs its own client, so that hanging reads cannot delay commits. */
  constructor(options: { readonly db: Db }) {
    this.#collection = submissionCollection(options.db);
  }

  /**
   * Reads all partners' requests, so an unknown id takes as long as another partner's. `leftMs` is
   * how long the caller waits.
   */
  read(requestIds: readonly string[], leftMs: number): Promise<readonly StatusRecord[]> {
    const maxTimeMS = serverMs(leftMs);
    const found = this.#collection.find({ _id: { $in: requestIds } }, { ...reading, maxTimeMS });
    return within(leftMs, found.toArray());
  }

  /** Newest first. States have no index, so a page may be short although there are more. */
  async list(query: ListQuery, leftMs: number): Promise<ListPage> {
    const { partnerId, test, since, until, states, before, idempotencyKey: key } = query;
    if (key !== undefined) return this.#withKey(query, key, leftMs);
    const from = since && firstIdAt('req', later(since, -ID_AND_RECEIPT_MS));
    const end = until && firstIdAt('req', later(until, ID_AND_RECEIPT_MS));
    const [last] = [before, end].filter((id) => id !== undefined).toSorted();
    const lookedAt = states === undefined ? LIST_PAGE : LIST_LOOKED_AT;
    const { found, next } = await within(
      leftMs,
      newestOf<SubmissionRecord>(
        this.#collection,
        {
          partnerId,
          ...(test ? { test } : live),
          ...(since || until ? { receivedAt: defined({ $gte: since, $lt: until }) } : {}),
        },
        {
          ...reading,
          hint: test ? 'requests_tests_partner' : 'requests_partner',
          size: lookedAt,
          prefix: 'req',
          before: last,
          from,
          withinMs: serverMs(leftMs),
        },
      ),
    );
    const matching = found.filter(({ state }) => states?.includes(state) ?? true);
    const records = matching.slice(0, LIST_PAGE);
    const isCut = matching.length > LIST_PAGE;
    return { records, ...defined({ next: isCut ? records.at(-1)?._id : next }) };
  }

  /** At most one record has the digest, so the other conditions are checked here. */
  async #withKey(query: ListQuery, key: string, leftMs: number): Promise<ListPage> {
    const { partnerId, since, until, states, before } = query;
    const owner = ownerName(partnerId, query);
    const digest = idempotencyDigest(owner, key);
    const maxTimeMS = serverMs(leftMs);
    const kept = this.#collection.find({ idempotencyDigest: digest }, { ...reading, maxTimeMS });
    const found = await within(leftMs, kept.toArray());
    const records = found.filter(
      ({ _id, receivedAt, state, partnerId: itsPartner = '', test }) =>
        ownerName(itsPartner, { test }) === owner &&
        (before === undefined || _id < before) &&
        (since === undefined || receivedAt >= since) &&
        (until === undefined || receivedAt < until) &&
        (states?.includes(state) ?? true),
    );
    return { records };
  }
}

export const serverMs = (leftMs: number): number => Math.max(1, Math.floor(leftMs - ANSWER_MS));

function within<T>(leftMs: number, reads: Promise<T>): Promise<T> {
  return withDeadline(reads, Math.max(1, leftMs), 'reading statuses');
}

/* Reads a partner's outcomes: its accepted requests that have ended, in the order of `stateAt`. */

export const OUTCOMES_PAGE = 100;
/** Outcomes that one look for all waiting partners reads. */
const NEWS_MOST = 1_000;

/** Whose outcomes: a partner's live ones, or those of its tests. */
export interface Whose extends Mode {
  readonly partnerId: string;
}

/** Behind all outcomes before `ms`, and behind those of `ms` up to this id. */
export interface OutcomePlace {
  readonly ms: number;
  readonly id: string;
}

export interface OutcomesRead {
  readonly records: readonly StatusRecord[];
  /** How far was read. */
  readonly place: OutcomePlace;
  /** There may be more behind it. */
  readonly more: boolean;
}

/** FerretDB sorts all matches, so a read that takes longer is repeated over less time. */
const NARROWED_AFTER_MS = 200;
const NARROWED_BY = 16;
const NARROWEST_MS = 1_000;
const WIDENED_BY = 4;

const marks = { partnerId: 1, test: 1, state: 1, stateAt: 1 } as const;
export type OutcomeMark = Pick<SubmissionRecord, '_id' | keyof typeof marks>;

export const placeOf = ({
  _id: id,
  stateAt,
}: Pick<OutcomeMark, '_id' | 'stateAt'>): OutcomePlace => {
  return { ms: stateAt.getTime(), id };
};

export const isBehind = (one: OutcomePlace, other: OutcomePlace): boolean =>
  one.ms > other.ms || (one.ms === other.ms && one.id > other.id);

/** Times that end reads are those of `performance.now()`. */
export class OutcomeReader {
  readonly #collection: Collection<SubmissionRecord>;

  /** Needs its own client, so that hanging reads cannot delay commits. */
  constructor(options: { readonly db: Db }) {
    this.#collection = submissionCollection(options.db);
  }

  /** What comes after `place`, a page at most, from one read. Rejects if none ended in time. */
  async after(whose: Whose, place: OutcomePlace, endsAt: number): Promise<OutcomesRead> {
    let [from, aheadMs] = [place, Infinity];
    /** A range up to this time took too long. */
    let denseMs = Infinity;
    while (performance.now() < endsAt) {
      const isNarrowest = aheadMs <= NARROWEST_MS;
      const upToMs = from.ms + aheadMs;
      const isLast = upToMs >= Date.now();
      const stateAt = isLast ? { $gte: new Date(from.ms) } : between(from.ms, upToMs);
      const leftMs = leftUntil(endsAt);
      const maxTimeMS = isNarrowest ? leftMs : Math.min(leftMs, NARROWED_AFTER_MS);
      const options = { ...hintOf(whose), ...reading, maxTimeMS };
      try {
        const records = await this.#collection
          .find({ ...of(whose), stateAt, ...behind(from) }, options)
          .sort({ stateAt: 1, _id: 1 })
          .limit(OUTCOMES_PAGE)
          .batchSize(OUTCOMES_PAGE)
          .toArray();
        const last = records.at(-1);
        const more = !isLast || records.length === OUTCOMES_PAGE;
        if (last !== undefined) return { records, place: placeOf(last), more };
        if (isLast) return { records, place, more };
        from = { ms: upToMs, id: '' };
        if (denseMs <= upToMs) denseMs = Infinity;
        aheadMs = Math.max(NARROWEST_MS, Math.min(aheadMs * WIDENED_BY, (denseMs - upToMs) / 2));
      } catch (error) {
        if (!tookTooLong(error) || isNarrowest) throw error;
        denseMs = Math.min(upToMs, Date.now());
        aheadMs = Math.max(NARROWEST_MS, (denseMs - from.ms) / NARROWED_BY);
      }
    }
    throw tooLong();
  }

  /** The last `most` outcomes from `fromMs` up to `place`. */
  marks(
    whose: Whose,
    fromMs: number,
    { ms, id }: OutcomePlace,
    most: number,
    endsAt: number,
  ): Promise<readonly OutcomeMark[]> {
    const stateAt = { $gte: new Date(fromMs), $lte: new Date(ms) };
    const upTo = { $or: [{ stateAt: { $lt: new Date(ms) } }, { _id: { $lte: id } }] };
    return this.#marks({ ...of(whose), stateAt, ...upTo }, whose, endsAt)
      .sort({ stateAt: -1, _id: -1 })
      .limit(most)
      .batchSize(most)
      .toArray();
  }

  /** Outcomes later than those that each partner knows; not all if there are many. */
  async news(known: readonly (Whose & { readonly ms: number })[], leftMs: number) {
    const byMode = Map.groupBy(known, ({ test = false }) => test).values();
    const endsAt = performance.now() + leftMs;
    const found = await Promise.all(
      [...byMode].map((some) => {
        const each = some.map(({ partnerId, ms }) => ({
          partnerId,
          stateAt: { $gt: new Date(ms) },
        }));
        const { partnerId: _, ...ofMode } = of(some[0]!);
        return this.#marks({ ...ofMode, $or: each }, some[0]!, endsAt)
          .limit(NEWS_MOST)
          .batchSize(NEWS_MOST)
          .toArray();
      }),
    );
    return found.flat();
  }

  #marks(filter: Filter<SubmissionRecord>, whose: Whose, endsAt: number) {
    const maxTimeMS = leftUntil(endsAt);
    const options = { ...reading, ...hintOf(whose), projection: marks, maxTimeMS };
    return this.#collection.find<OutcomeMark>(filter, options);
  }
}

const leftUntil = (endsAt: number): number => Math.max(1, Math.floor(endsAt - performance.now()));

const of = ({ partnerId, test }: Whose) => ({
  partnerId,
  ...(test ? { test } : live),
  state: { $in: [...endStates] },
});

const hintOf = ({ test }: Mode) => ({
  hint: test ? 'requests_tests_outcomes' : 'requests_outcomes',
});

const between = (fromMs: number, toMs: number) => ({ $gte: new Date(fromMs), $lt: new Date(toMs) });

const behind = ({ ms, id }: OutcomePlace) =>
  id === '' ? {} : { $or: [{ stateAt: { $gt: new Date(ms) } }, { _id: { $gt: id } }] };
