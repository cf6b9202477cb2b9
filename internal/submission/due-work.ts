/** Finds due records, removes expired bodies, and counts what waits. */
import type { Collection, Db, Filter } from 'mongodb';
import { type Clock, later } from '../platform/process/clock.ts';
import { defined } from '../platform/process/defined.ts';
import { bounded } from '../platform/stores/mongo-read.ts';
import { updateInOrder } from '../platform/stores/mongo.ts';
import { touchOf } from './move-of.ts';
import { backlogStates, isOpen, type OpenState, openStates } from './states.ts';
import {
  FIRST_SIGHT_GRACE_MS,
  live,
  liveOpen,
  RECORD_SCHEMA,
  submissionCollection,
  type SubmissionRecord,
} from './submission.ts';

export const DUE_PAGE = 500;
/** Pages of one state; each leaves out the partners of the pages before. */
const DUE_PAGES = 4;
/** Just below the socket time-out of 10 s. */
const DUE_TIMEOUT_MS = 9_000;
const BODY_EXPIRY_PAGE = 500;
const BACKLOG_TIMEOUT_MS = 5_000;

export const dueFields = {
  state: 1,
  version: 1,
  dueAt: 1,
  claimedUntil: 1,
  firstSeenAt: 1,
  waitsSince: 1,
  backedOffMs: 1,
  partnerId: 1,
  test: 1,
  probe: 1,
} as const;
export type DueRecord = Pick<SubmissionRecord, '_id' | keyof typeof dueFields> & {
  readonly state: OpenState;
};

interface Due {
  readonly records: readonly DueRecord[];
  /** States of which more may be due. */
  readonly full: readonly OpenState[];
}

interface Without {
  readonly withoutPartners: readonly string[];
}

export class DueWork {
  readonly #collection: Collection<SubmissionRecord>;
  readonly #clock: Clock;

  constructor(options: { readonly db: Db; readonly clock: Clock }) {
    this.#collection = submissionCollection(options.db);
    this.#clock = options.clock;
  }

  /** The live records due longest in each open state. */
  async read({ withoutPartners }: Without): Promise<Due> {
    const found = await Promise.all(
      openStates.map((state) => this.#pages({ ...live, state }, withoutPartners)),
    );
    return {
      records: found.flat(),
      full: openStates.filter((_, index) => found[index]!.length >= DUE_PAGE),
    };
  }

  /** The tests due longest. */
  readTests({ withoutPartners }: Without): Promise<DueRecord[]> {
    return this.#pages({ state: { $in: [...openStates] }, test: true }, withoutPartners);
  }

  /** Each further page leaves out the partners of full ones, so that none hides others. */
  async #pages(
    filter: Filter<SubmissionRecord>,
    withoutPartners: readonly string[],
  ): Promise<DueRecord[]> {
    const without = new Set(withoutPartners);
    const records: DueRecord[] = [];
    for (let pages = 1; pages <= DUE_PAGES; pages += 1) {
      const page = await this.#page(filter, [...without]);
      records.push(...page);
      if (page.length < DUE_PAGE) break;
      for (const { partnerId = '' } of page) without.add(partnerId);
    }
    return records;
  }

  #page(
    filter: Filter<SubmissionRecord>,
    withoutPartners: readonly string[],
  ): Promise<DueRecord[]> {
    // FerretDB uses a partial index only if its condition stands in the query.
    const dueAt = { $exists: true, $lte: this.#clock.now() };
    const partnerId = withoutPartners.length === 0 ? undefined : { $nin: [...withoutPartners] };
    return this.#collection
      .find(
        { ...filter, dueAt, schema: { $lte: RECORD_SCHEMA }, ...defined({ partnerId }) },
        { projection: dueFields, maxTimeMS: DUE_TIMEOUT_MS, sort: { dueAt: 1 } },
      )
      .limit(DUE_PAGE)
      .batchSize(DUE_PAGE)
      .toArray() as Promise<DueRecord[]>;
  }

  /** Makes unclaimed records due again after the time for a withdrawal. */
  async noteFirstSight(records: readonly DueRecord[]): Promise<void> {
    if (records.length === 0) return;
    const now = this.#clock.now();
    await this.#lookAgain(records, now, {
      dueAt: later(now, FIRST_SIGHT_GRACE_MS),
      firstSeenAt: now,
    });
  }

  /** Makes a record due that waits for an earlier one, unless it has changed. */
  async endWait(record: DueRecord): Promise<void> {
    const now = this.#clock.now();
    await this.#lookAgain([record], now, { dueAt: now });
  }

  async #lookAgain(
    records: readonly DueRecord[],
    now: Date,
    $set: Partial<SubmissionRecord>,
  ): Promise<void> {
    const updates = records.map(({ _id, version, dueAt }) => {
      const q = { ...touchOf('look_again', { version }, now), ...defined({ dueAt }) };
      return { ids: [_id], q, u: { $set } };
    });
    await updateInOrder(this.#collection, updates);
  }

  /** Makes accepted records due at once, when no hint can be sent. */
  async makeDue(accepted: readonly { readonly requestId: string }[]): Promise<void> {
    const now = this.#clock.now();
    const ids = accepted.map(({ requestId }) => requestId);
    const q = touchOf('make_due', {}, now)!;
    const u = { $set: { dueAt: now, firstSeenAt: now } };
    await updateInOrder(this.#collection, [{ ids, q, u }]);
  }

  async countUnknown(limit: number): Promise<number> {
    const dueAt = { $exists: true, $lte: this.#clock.now() };
    const options = { limit, maxTimeMS: BACKLOG_TIMEOUT_MS };
    const counts = await Promise.all([
      this.#collection.countDocuments({ state: { $nin: [...openStates] }, dueAt }, options),
      this.#collection.countDocuments(
        { state: { $in: [...openStates] }, dueAt, schema: { $gt: RECORD_SCHEMA } },
        options,
      ),
    ]);
    return Math.min(
      limit,
      counts.reduce((sum, count) => sum + count, 0),
    );
  }

  /**
   * Removes a page of raw bodies whose time is over, because a TTL index cannot delete a single
   * field. True if more may be due.
   */
  async removeBodies(): Promise<boolean> {
    const q = { bodyUntil: { $exists: true, $lte: this.#clock.now() } };
    const over = await this.#collection
      .find(q, { projection: { _id: 1 }, ...bounded })
      .sort({ bodyUntil: 1 })
      .limit(BODY_EXPIRY_PAGE)
      .toArray();
    const ids = over.map(({ _id }) => _id);
    const u = { $unset: { body: true, bodyUntil: true } };
    if (ids.length > 0) await updateInOrder(this.#collection, [{ ids, q, u }]);
    return ids.length === BODY_EXPIRY_PAGE;
  }
}

/* Counts the live work that waits in the database, from indexes as small as the backlog. */

const BOUNCED_WINDOW_MS = 86_400_000;
const BACKLOG_COUNTED = 100_000;
/** Lower, because counting by partner reads documents. */
const BACKLOG_BY_PARTNER = 20_000;
/** Records read from each end of `dueAt` to find the oldest. */
export const BACKLOG_LOOKED_AT = 500;

export type Backlog = Awaited<ReturnType<typeof readBacklog>>;

/** Each count stops at `BACKLOG_COUNTED`. */
export async function readBacklog(db: Db, now: Date, partnersOnHold: readonly string[] = []) {
  const requests = submissionCollection(db);
  const count = (filter: Filter<SubmissionRecord>): Promise<number> =>
    requests.countDocuments(filter, {
      limit: BACKLOG_COUNTED,
      maxTimeMS: BACKLOG_TIMEOUT_MS,
    });
  const held = partnersOnHold.length === 0 ? undefined : [...partnersOnHold];
  const others = held === undefined ? {} : { partnerId: { $nin: held } };
  const open = (state: OpenState) => ({ ...liveOpen, state, ...others });
  const since = later(now, -BOUNCED_WINDOW_MS);
  // An unhandled rejection would end the process, so all are awaited together.
  const [records, oldestReceivedAt, bounced, onHold] = await Promise.all([
    forEach(backlogStates, (state) => count(isOpen(state) ? open(state) : { ...live, state })),
    forEach(openStates, (state) => oldest(requests, open(state))),
    count({ ...live, bouncedAt: { $exists: true, $gt: since } }),
    held === undefined ? 0 : count({ ...liveOpen, partnerId: { $in: held } }),
  ]);
  return { bounced, onHold, records, oldestReceivedAt };
}

async function forEach<Key extends string, Value>(
  keys: readonly Key[],
  read: (key: Key) => Promise<Value>,
): Promise<Record<Key, Value>> {
  const pairs = keys.map(async (key) => [key, await read(key)] as const);
  return Object.fromEntries(await Promise.all(pairs)) as Record<Key, Value>;
}

/** Counts the first `BACKLOG_BY_PARTNER` open records by partner. */
export async function readPartnerBacklog(
  db: Db,
): Promise<{ readonly partnerId: string; readonly records: number }[]> {
  return submissionCollection(db)
    .aggregate<{ partnerId: string; records: number }>(
      [
        { $match: liveOpen },
        { $limit: BACKLOG_BY_PARTNER },
        { $group: { _id: '$partnerId', records: { $sum: 1 } } },
        { $sort: { records: -1 } },
        { $project: { _id: 0, partnerId: '$_id', records: 1 } },
      ],
      { maxTimeMS: BACKLOG_TIMEOUT_MS },
    )
    .toArray();
}

/**
 * An index on `receivedAt` would slow inserts by a seventh, so both ends of `dueAt` are read: the
 * oldest record is first if never tried, last if its back-off is longest. This is exact for up to
 * 1,000 records.
 */
async function oldest(
  requests: Collection<SubmissionRecord>,
  filter: Filter<SubmissionRecord>,
): Promise<Date | undefined> {
  const ends = await Promise.all(
    ([1, -1] as const).map((order) =>
      requests
        .find(filter, { projection: { receivedAt: 1 }, maxTimeMS: BACKLOG_TIMEOUT_MS })
        .sort({ dueAt: order })
        .limit(BACKLOG_LOOKED_AT)
        .toArray(),
    ),
  );
  const times = ends.flat().map(({ receivedAt }) => receivedAt.getTime());
  return times.length === 0 ? undefined : new Date(Math.min(...times));
}
