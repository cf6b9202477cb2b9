/** Reads for partners, those that wait together; each partner has its share of all under way. */
import { withDeadline } from '../platform/deadline.ts';
import { newDispatcher, type Dispatcher } from '../platform/dispatcher.ts';
import { FairShares, type Owner } from '../platform/fair-shares.ts';
import { STATUS_TIMEOUT_MS } from './limits.ts';

/** Two queries under way keep the database and the process busy. */
const QUERIES = 2;

interface Read<Item, Result> {
  readonly item: Item;
  readonly partnerId: string;
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
  readonly #shares: FairShares<Read<Item, Result>>;
  readonly #waiting = new Set<Read<Item, Result>>();
  readonly #dispatcher: Dispatcher<Read<Item, Result>>;

  constructor({ max, together, query }: FairReadsOptions<Item, Result>) {
    this.#query = query;
    this.#shares = new FairShares(max, (read) => read.reject(new Error('too many reads')));
    this.#dispatcher = newDispatcher(
      QUERIES,
      () => {
        const next: Read<Item, Result>[] = [];
        while (next.length < together && this.#waiting.size > 0) next.push(this.#next());
        return next;
      },
      (reads) => this.#send(reads),
    );
  }

  /** Rejects where there is no result in time, or when `gone` aborts. */
  async read(item: Item, owner: Owner, gone: AbortSignal): Promise<Result> {
    const { promise, ...settle } = Promise.withResolvers<Result>();
    const endsAt = performance.now() + STATUS_TIMEOUT_MS;
    const read = { item, partnerId: owner[0], endsAt, ...settle };
    gone.addEventListener('abort', () => settle.reject(new Error('the client has left')));
    this.#waiting.add(read);
    this.#shares.hold(read, owner);
    this.#dispatcher.plan();
    try {
      return await withDeadline(promise, STATUS_TIMEOUT_MS, 'reading for a partner');
    } finally {
      this.#waiting.delete(read);
      this.#shares.release(read);
    }
  }

  /** The read whose turn it is; its partner's others then stand behind those of all partners. */
  #next(): Read<Item, Result> {
    const [read, ...others] = [...this.#waiting];
    this.#waiting.delete(read!);
    for (const other of others.filter(({ partnerId }) => partnerId === read!.partnerId)) {
      this.#waiting.delete(other);
      this.#waiting.add(other);
    }
    return read!;
  }

  async #send(reads: readonly Read<Item, Result>[]): Promise<void> {
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
