/** Reads what a partner may see of its own requests. */
import type { Collection, Db } from 'mongodb';
import { ownerName } from '../partner/mode.ts';
import { later } from '../platform/clock.ts';
import { withDeadline } from '../platform/deadline.ts';
import { defined } from '../platform/defined.ts';
import { firstIdAt } from '../platform/ids.ts';
import { newestOf } from '../platform/mongo-read.ts';
import { idempotencyDigest } from './idempotency.ts';
import type { State } from './states.ts';
import { live, submissionCollection, type SubmissionRecord } from './submission.ts';

export const LIST_PAGE = 100;
/** The server ends a read this long before its caller gives up, so that no read is abandoned. */
const ANSWER_MS = 500;
/** For a page of one state: at most 32 MB of bodies pass. */
const LIST_LOOKED_AT = 500;
/** An id is made before the head, the record is stamped after the body: 20 s, and clocks differ. */
const ID_AND_RECEIPT_MS = 60_000;

const shown = { partnerId: 1, test: 1, receivedAt: 1, state: 1, stateAt: 1, reasons: 1 } as const;
// A failover must not roll back what a partner has read.
const reading = { readConcern: 'majority', projection: shown } as const;
export type StatusRecord = Pick<SubmissionRecord, '_id' | keyof typeof shown>;

export interface ListQuery {
  readonly partnerId: string;
  /** Whether it lists tests, or what is live. */
  readonly test?: true | undefined;
  /** Of the time of receipt; `until` is excluded. */
  readonly since?: Date | undefined;
  readonly until?: Date | undefined;
  readonly states?: readonly State[] | undefined;
  /** Only older ids. */
  readonly before?: string | undefined;
  readonly idempotencyKey?: string | undefined;
}

export interface ListPage {
  readonly records: readonly StatusRecord[];
  /** What `before` is for the next page; absent after the last. */
  readonly next?: string;
}

export class StatusReader {
  readonly #collection: Collection<SubmissionRecord>;
  readonly #timeoutMs: number;

  /** Needs its own client, so that hanging reads cannot delay commits. */
  constructor(options: { readonly db: Db; readonly timeoutMs: number }) {
    this.#collection = submissionCollection(options.db);
    this.#timeoutMs = options.timeoutMs;
  }

  /** Requests of all partners: an unknown id takes as long as another partner's. */
  read(requestIds: readonly string[]): Promise<readonly StatusRecord[]> {
    return this.#within(
      this.#collection
        .find({ _id: { $in: requestIds } }, { ...reading, maxTimeMS: this.#serverMs })
        .toArray(),
    );
  }

  /** Newest first. States have no index, so a page may be short although there are more. */
  async list(query: ListQuery): Promise<ListPage> {
    const { partnerId, test, since, until, states, before, idempotencyKey: key } = query;
    if (key !== undefined) return this.#withKey(query, key);
    const from = since && firstIdAt('req', later(since, -ID_AND_RECEIPT_MS));
    const end = until && firstIdAt('req', later(until, ID_AND_RECEIPT_MS));
    const [last] = [before, end].filter((id) => id !== undefined).toSorted();
    const lookedAt = states === undefined ? LIST_PAGE : LIST_LOOKED_AT;
    const { found, next } = await this.#within(
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
          withinMs: this.#serverMs,
        },
      ),
    );
    const matching = found.filter(({ state }) => states?.includes(state) ?? true);
    const records = matching.slice(0, LIST_PAGE);
    const isCut = matching.length > LIST_PAGE;
    return { records, ...defined({ next: isCut ? records.at(-1)?._id : next }) };
  }

  /** At most one record has the digest, so the other conditions need no query. */
  async #withKey(query: ListQuery, key: string): Promise<ListPage> {
    const { partnerId, since, until, states, before } = query;
    const owner = ownerName(partnerId, query);
    const digest = idempotencyDigest(owner, 'submitApplication', key);
    const found = await this.#within(
      this.#collection
        .find({ idempotencyDigest: digest }, { ...reading, maxTimeMS: this.#serverMs })
        .toArray(),
    );
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

  get #serverMs(): number {
    return this.#timeoutMs - ANSWER_MS;
  }

  #within<T>(reads: Promise<T>): Promise<T> {
    return withDeadline(reads, this.#timeoutMs, 'reading statuses');
  }
}
