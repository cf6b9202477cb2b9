/** Reads what a partner may see of its own requests. */
import type { Collection, Db } from 'mongodb';
import { ownerName } from '../partner/key-terms.ts';
import { later } from '../platform/process/clock.ts';
import { withDeadline } from '../platform/process/deadline.ts';
import { defined } from '../platform/process/defined.ts';
import { firstIdAt } from '../platform/stores/ids.ts';
import { newestOf } from '../platform/stores/mongo-read.ts';
import { idempotencyDigest } from './idempotency.ts';
import type { State } from './states.ts';
import { live, submissionCollection, type SubmissionRecord } from './submission.ts';

export const LIST_PAGE = 100;
/** The server ends a read this long before its caller gives up, so that no read is abandoned. */
const ANSWER_MS = 300;
/** Records read for one page of one state: at most 32 MB with bodies. */
const LIST_LOOKED_AT = 500;
/** Id and `receivedAt` may differ: receiving takes up to 20 s, and clocks differ. */
const ID_AND_RECEIPT_MS = 60_000;

const shown = { partnerId: 1, test: 1, receivedAt: 1, state: 1, stateAt: 1, reasons: 1 } as const;
// A failover must not roll back what a partner has read.
const reading = { readConcern: 'majority', projection: shown } as const;
export type StatusRecord = Pick<SubmissionRecord, '_id' | keyof typeof shown>;

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

const serverMs = (leftMs: number): number => Math.max(1, Math.floor(leftMs - ANSWER_MS));

function within<T>(leftMs: number, reads: Promise<T>): Promise<T> {
  return withDeadline(reads, Math.max(1, leftMs), 'reading statuses');
}
