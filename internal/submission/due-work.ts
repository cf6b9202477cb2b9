/** Open records that are due, and bodies whose time is over. */
import type { Collection, Db, Filter } from 'mongodb';
import { later, type Clock } from '../platform/process/clock.ts';
import { defined } from '../platform/process/defined.ts';
import { updateInOrder } from '../platform/stores/mongo.ts';
import { bounded } from '../platform/stores/mongo-read.ts';
import {
  BACKLOG_TIMEOUT_MS,
  FIRST_SIGHT_GRACE_MS,
  live,
  RECORD_SCHEMA,
  submissionCollection,
  type SubmissionRecord,
} from './submission.ts';
import { touchOf } from './move-of.ts';
import { openStates, type OpenState } from './states.ts';

export const DUE_PAGE = 500;
/** Each behind a full one, without the partners before. */
const DUE_PAGES = 4;
/** Just below the socket time-out of 10 s. */
const DUE_TIMEOUT_MS = 9_000;
const BODY_EXPIRY_PAGE = 500;

export type DueRecord = Pick<
  SubmissionRecord,
  '_id' | 'version' | 'dueAt' | 'claimedUntil' | 'firstSeenAt' | 'partnerId' | 'test'
> & { readonly state: OpenState };

interface Due {
  readonly records: readonly DueRecord[];
  /** States of which more may be due. */
  readonly full: readonly OpenState[];
}

interface Without {
  readonly withoutPartners: readonly string[];
}

const projection = {
  state: 1,
  version: 1,
  dueAt: 1,
  claimedUntil: 1,
  firstSeenAt: 1,
  partnerId: 1,
  test: 1,
};

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
      openStates.map((state) => this.#ofState(state, withoutPartners)),
    );
    return {
      records: found.flat(),
      full: openStates.filter((_, index) => found[index]!.length >= DUE_PAGE),
    };
  }

  /** At most a page, those due longest. */
  readTests({ withoutPartners }: Without): Promise<DueRecord[]> {
    return this.#page({ state: { $in: [...openStates] }, test: true }, withoutPartners);
  }

  /** Behind a full page comes one without its partners, so that none of them hides the others. */
  async #ofState(state: OpenState, withoutPartners: readonly string[]): Promise<DueRecord[]> {
    const without = new Set(withoutPartners);
    const records: DueRecord[] = [];
    for (let pages = 1; pages <= DUE_PAGES; pages += 1) {
      const page = await this.#page({ ...live, state }, [...without]);
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
        { projection, maxTimeMS: DUE_TIMEOUT_MS, sort: { dueAt: 1 } },
      )
      .limit(DUE_PAGE)
      .batchSize(DUE_PAGE)
      .toArray() as Promise<DueRecord[]>;
  }

  /** Makes unclaimed records due again after the time for a withdrawal. */
  async noteFirstSight(records: readonly DueRecord[]): Promise<void> {
    if (records.length === 0) return;
    const now = this.#clock.now();
    const $set = { dueAt: later(now, FIRST_SIGHT_GRACE_MS), firstSeenAt: now };
    await updateInOrder(
      this.#collection,
      records.map(({ _id, version, dueAt }) => ({
        ids: [_id],
        q: { ...touchOf('look_again', { version }, now), ...defined({ dueAt }) },
        u: { $set },
      })),
    );
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
