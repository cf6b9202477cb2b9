/** Reads for partners in batches; each partner has its share of those that are pending. */
import { FairShares, type Owner } from '../fair/shares.ts';
import { Turns } from '../fair/turns.ts';
import { newBatcher, type Batcher } from '../platform/stores/mongo-joined.ts';
import { withDeadline } from '../platform/process/deadline.ts';
import { STATUS_TIMEOUT_MS } from './bounds.ts';

/** While the database answers one query, the process works on the answer of another. */
const QUERIES = 2;

interface QueuedRead<Item, Result> {
  readonly item: Item;
  readonly endsAt: number;
  resolve(result: Result): void;
  reject(error: unknown): void;
}

interface FairReadsOptions<Item, Result> {
  /** Pending reads. One more rejects the oldest read of the partner that has most. */
  readonly max: number;
  /** How many reads one query takes. */
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

  /** Rejects if there is no result in time, or when `gone` aborts. */
  async read(item: Item, owner: Owner, gone: AbortSignal): Promise<Result> {
    if (gone.aborted) throw new Error('the client has left');
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
      this.#shares.remove(read);
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
