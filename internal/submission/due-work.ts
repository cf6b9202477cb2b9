/** Reads which open records are due. */
import type { Collection, Db, Filter } from 'mongodb';
import { later, type Clock } from '../platform/clock.ts';
import { defined } from '../platform/defined.ts';
import { requireDurable, updateInOrder } from '../platform/mongo.ts';
import {
  BACKLOG_TIMEOUT_MS,
  DUE_OF_PARTNER,
  DUE_PAGE,
  DUE_PARTNERS,
  DUE_TIMEOUT_MS,
  FIRST_SIGHT_GRACE_MS,
} from './limits.ts';
import { touchOf } from './move-of.ts';
import { openStates, type OpenState } from './states.ts';
import { live, RECORD_SCHEMA, submissionCollection, type SubmissionRecord } from './submission.ts';

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

const notOf = (partners: readonly string[]) =>
  partners.length === 0 ? undefined : { $nin: [...partners] };

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
  #lookedUpTo = '';

  constructor(options: { readonly db: Db; readonly clock: Clock }) {
    this.#collection = submissionCollection(options.db);
    this.#clock = options.clock;
  }

  /**
   * The live records due longest in each open state and, if e-mails fill a page, the oldest of other
   * partners, so that one partner cannot hide the others.
   */
  async read({ withoutPartners }: Without): Promise<Due> {
    const held = notOf(withoutPartners);
    const oldest = await Promise.all(openStates.map((state) => this.#find(state, held, DUE_PAGE)));
    const [, mails = []] = oldest;
    const others = mails.length < DUE_PAGE ? [] : await this.#ofOtherPartners(held);
    const byId = new Map([...oldest.flat(), ...others].map((record) => [record._id, record]));
    return {
      records: [...byId.values()],
      full: openStates.filter((_, index) => oldest[index]?.length === DUE_PAGE),
    };
  }

  /** At most a page, those due longest. */
  readTests({ withoutPartners }: Without): Promise<DueRecord[]> {
    const open = { state: { $in: [...openStates] }, test: true } as const;
    return this.#query({ ...open, ...defined({ partnerId: notOf(withoutPartners) }) }, DUE_PAGE);
  }

  async #ofOtherPartners(held: { readonly $nin: string[] } | undefined): Promise<DueRecord[]> {
    const records = [];
    for (let partners = 0; partners < DUE_PARTNERS; partners += 1) {
      // The first entry after a partner is the next partner's oldest record.
      const behind = { ...held, $gt: this.#lookedUpTo };
      const order = { partnerId: 1, dueAt: 1 } as const;
      const [first] = await this.#find('account_created', behind, 1, order);
      const partnerId = first?.partnerId;
      this.#lookedUpTo = partnerId ?? '';
      if (partnerId === undefined) break;
      records.push(...(await this.#find('account_created', partnerId, DUE_OF_PARTNER)));
    }
    return records;
  }

  #find(
    state: OpenState,
    partnerId: Filter<SubmissionRecord>['partnerId'],
    limit: number,
    order?: Readonly<Record<string, 1>>,
  ): Promise<DueRecord[]> {
    return this.#query({ ...live, state, ...defined({ partnerId }) }, limit, order);
  }

  #query(
    filter: Filter<SubmissionRecord>,
    limit: number,
    sort: Readonly<Record<string, 1>> = { dueAt: 1 },
  ): Promise<DueRecord[]> {
    // FerretDB uses a partial index only if its condition stands in the query.
    const dueAt = { $exists: true, $lte: this.#clock.now() };
    return this.#collection
      .find(
        { ...filter, dueAt, schema: { $lte: RECORD_SCHEMA } },
        { projection, maxTimeMS: DUE_TIMEOUT_MS, sort },
      )
      .limit(limit)
      .batchSize(limit)
      .toArray() as Promise<DueRecord[]>;
  }

  /** Makes unclaimed records due again after the time for a withdrawal. */
  async noteFirstSight(records: readonly DueRecord[]): Promise<void> {
    if (records.length === 0) return;
    const now = this.#clock.now();
    const $set = { dueAt: later(now, FIRST_SIGHT_GRACE_MS), firstSeenAt: now };
    const reply = await updateInOrder(
      this.#collection,
      records.map(({ _id, version, dueAt }) => ({
        ids: [_id],
        q: { ...touchOf('look_again', { version }, now), ...defined({ dueAt }) },
        u: { $set },
      })),
    );
    requireDurable(reply);
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
}
