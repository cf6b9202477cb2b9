/** What partners ask for: the state of a request, now or once it is final, and their requests. */
import { FairShares, type Owner } from '../fair/shares.ts';
import { Turns } from '../fair/turns.ts';
import { ownerName } from '../partner/mode.ts';
import { type Batcher, newBatcher } from '../platform/process/batcher.ts';
import { withDeadline } from '../platform/process/deadline.ts';
import type { Loops } from '../platform/process/loop.ts';
import { cardOf } from '../submission/states.ts';
import type {
  ListPage,
  ListQuery,
  StatusReader,
  StatusRecord,
} from '../submission/status-reader.ts';
import { SHARED, STATUS_TIMEOUT_MS } from './bounds.ts';
import type { Status } from './contract.ts';

const LOOK_EVERY_MS = 1_000;
/** Of ends that came before their wait; the next round finds further ones. */
const ENDED_MOST = 10_000;
/** Less than the longest wait: without waits there is nothing to read. */
const WAITS_FAIL_AFTER_MS = 10_000;

export function statusOf({ state }: Pick<StatusRecord, 'state'>): Status {
  // A newer version may have written an unknown state.
  return cardOf(state)?.status ?? 'processing';
}

interface Wait {
  record: StatusRecord;
  /** With whether the wait came to its end: a final state, or its time. */
  end(waited: boolean): void;
}

interface StatusTools {
  readonly reader: Pick<StatusReader, 'read' | 'list'>;
  /** Aborts when the process drains. */
  readonly drain: AbortSignal;
  readonly loops: Pick<Loops<'status_waits'>, 'start'>;
}

export class Statuses {
  readonly #tools: StatusTools;
  readonly #lookUps: FairReads<string, StatusRecord | undefined>;
  readonly #lists: FairReads<ListQuery, ListPage>;
  readonly #waits = new FairShares<Wait>(SHARED.waits, (wait) => wait.end(false));
  /** Heard since the last round, and in the round before. */
  #ended: [now: Set<string>, before: Set<string>] = [new Set(), new Set()];
  #toLookAt: Wait[] = [];
  readonly #batcher: Batcher<Wait>;

  constructor(tools: StatusTools) {
    this.#tools = tools;
    const { reader, drain, loops } = tools;
    this.#lookUps = new FairReads({
      max: SHARED.lookUps,
      together: SHARED.lookUps,
      query: (ids, leftMs) => this.#read(ids, leftMs),
    });
    this.#lists = new FairReads({
      max: SHARED.lists,
      together: 1,
      query: (queries, leftMs) => Promise.all(queries.map((query) => reader.list(query, leftMs))),
    });
    this.#batcher = newBatcher(
      1,
      () => this.#toLookAt.splice(0),
      // The next round looks again.
      (waits) => this.#lookAt(waits).catch(() => {}),
    );
    loops.start({
      name: 'status_waits',
      everyMs: LOOK_EVERY_MS,
      failsAfterMs: WAITS_FAIL_AFTER_MS,
      run: () => this.#look(),
    });
    drain.addEventListener('abort', () => {
      for (const wait of this.#waits.holders) wait.end(false);
    });
  }

  /** Undefined where the partner has no such request; rejects where that cannot be said in time. */
  async find(
    requestId: string,
    owner: Owner,
    gone: AbortSignal,
  ): Promise<StatusRecord | undefined> {
    const found = await this.#lookUps.read(requestId, owner, gone);
    return found && ownerName(found.partnerId ?? '', found) === owner[0] ? found : undefined;
  }

  /**
   * Resolves when the state is final or `ms` have passed; earlier, with `waited` false, when
   * `gone` aborts, the process drains, or others have a better right to wait.
   */
  async wait(
    record: StatusRecord,
    owner: Owner,
    ms: number,
    gone: AbortSignal,
  ): Promise<{ readonly record: StatusRecord; readonly waited: boolean }> {
    if (statusOf(record) !== 'processing') return { record, waited: true };
    if (this.#tools.drain.aborted) return { record, waited: false };
    const { promise, resolve } = Promise.withResolvers<boolean>();
    const wait: Wait = { record, end: resolve };
    const timer = setTimeout(resolve, ms, true);
    gone.addEventListener('abort', () => resolve(false));
    this.#waits.hold(wait, owner);
    // It may have ended since it was read.
    if (this.#ended.some((ids) => ids.has(record._id))) this.#lookSoon([wait]);
    const waited = await promise;
    clearTimeout(timer);
    this.#waits.release(wait);
    return { record: wait.record, waited };
  }

  list(query: ListQuery, owner: Owner, gone: AbortSignal): Promise<ListPage> {
    return this.#lists.read(query, owner, gone);
  }

  /** Makes the waits for these look at once. */
  ended(requestIds: readonly string[]): void {
    const [now] = this.#ended;
    for (const id of requestIds.slice(0, ENDED_MOST - now.size)) now.add(id);
    const ids = new Set(requestIds);
    this.#lookSoon([...this.#waits.holders].filter(({ record }) => ids.has(record._id)));
  }

  #lookSoon(waits: readonly Wait[]): void {
    this.#toLookAt.push(...waits);
    this.#batcher.plan();
  }

  async #look(): Promise<void> {
    this.#ended = [new Set(), this.#ended[0]];
    await this.#lookAt([...this.#waits.holders]);
  }

  /** One query for all of them. */
  async #lookAt(waits: readonly Wait[]): Promise<void> {
    if (waits.length === 0) return;
    const found = await this.#read(
      waits.map(({ record }) => record._id),
      STATUS_TIMEOUT_MS,
    );
    for (const [index, wait] of waits.entries()) {
      wait.record = found[index] ?? wait.record;
      if (statusOf(wait.record) !== 'processing') wait.end(true);
    }
  }

  async #read(
    ids: readonly string[],
    leftMs: number,
  ): Promise<readonly (StatusRecord | undefined)[]> {
    const found = await this.#tools.reader.read([...new Set(ids)], leftMs);
    const byId = new Map(found.map((record) => [record._id, record]));
    return ids.map((id) => byId.get(id));
  }
}

/* Reads for partners, those that wait together; each partner has its share of all under way. */

/** Two queries under way keep the database and the process busy. */
const QUERIES = 2;

interface QueuedRead<Item, Result> {
  readonly item: Item;
  readonly endsAt: number;
  resolve(result: Result): void;
  reject(error: unknown): void;
}

interface FairReadsOptions<Item, Result> {
  /** Beyond it, the partner with most reads has its oldest rejected. */
  readonly max: number;
  /** In one query. */
  readonly together: number;
  /** Must end within `leftMs`, in the database too; returns the results in order. */
  readonly query: (items: readonly Item[], leftMs: number) => Promise<readonly Result[]>;
}

export class FairReads<Item, Result> {
  readonly #query: FairReadsOptions<Item, Result>['query'];
  readonly #shares: FairShares<QueuedRead<Item, Result>>;
  readonly #waiting = new Turns<QueuedRead<Item, Result>>();
  readonly #batcher: Batcher<QueuedRead<Item, Result>>;

  constructor({ max, together, query }: FairReadsOptions<Item, Result>) {
    this.#query = query;
    this.#shares = new FairShares(max, (read) => read.reject(new Error('too many reads')));
    this.#batcher = newBatcher(
      QUERIES,
      () => {
        let count = 0;
        return this.#waiting.take(() => (count += 1) <= together);
      },
      (reads) => this.#send(reads),
    );
  }

  /** Rejects where there is no result in time, or when `gone` aborts. */
  async read(item: Item, owner: Owner, gone: AbortSignal): Promise<Result> {
    const { promise, ...settle } = Promise.withResolvers<Result>();
    const endsAt = performance.now() + STATUS_TIMEOUT_MS;
    const read = { item, endsAt, ...settle };
    gone.addEventListener('abort', () => settle.reject(new Error('the client has left')));
    this.#waiting.put(owner[0], read);
    this.#shares.hold(read, owner);
    this.#batcher.plan();
    try {
      return await withDeadline(promise, STATUS_TIMEOUT_MS, 'reading for a partner');
    } finally {
      this.#waiting.remove(owner[0], read);
      this.#shares.release(read);
    }
  }

  async #send(reads: readonly QueuedRead<Item, Result>[]): Promise<void> {
    try {
      const leftMs = Math.max(...reads.map(({ endsAt }) => endsAt)) - performance.now();
      const items = reads.map(({ item }) => item);
      const results = await this.#query(items, leftMs);
      for (const [index, read] of reads.entries()) read.resolve(results[index]!);
    } catch (error) {
      for (const read of reads) read.reject(error);
    }
  }
}
