/** Runs concurrent calls as one batch and gives each call its own outcome. */
import { newDispatcher, type Dispatcher } from './dispatcher.ts';

/** Two batches in flight keep both the database and the process busy. */
const LIMITS = { maxItems: 100, maxInFlight: 2 } as const;

export class Batcher<Item, Result> {
  readonly #run: (items: readonly Item[]) => Promise<readonly Outcome<Result>[]>;
  readonly #waiting: Call<Item, Result>[] = [];
  readonly #dispatcher: Dispatcher<Call<Item, Result>>;

  /**
   * `run` returns one outcome per item, in order, and must end. If it rejects, every call rejects.
   */
  constructor(
    run: (items: readonly Item[]) => Promise<readonly Outcome<Result>[]>,
    { maxItems, maxInFlight }: { readonly maxItems: number; readonly maxInFlight: number } = LIMITS,
  ) {
    this.#run = run;
    const take = (): Call<Item, Result>[] => this.#waiting.splice(0, maxItems);
    this.#dispatcher = newDispatcher(maxInFlight, take, (calls) => this.#send(calls));
  }

  /** The queue needs no bound, because callers limit their own concurrency. */
  call(item: Item): Promise<Result> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ item, resolve, reject });
      this.#dispatcher.plan();
    });
  }

  async #send(calls: readonly Call<Item, Result>[]): Promise<void> {
    try {
      const outcomes = await this.#run(calls.map(({ item }) => item));
      for (const [index, { resolve, reject }] of calls.entries()) {
        const outcome = outcomes[index];
        if (outcome === undefined) reject(new Error('a batch left a call without an outcome'));
        else if ('error' in outcome) reject(outcome.error);
        else resolve(outcome.result);
      }
    } catch (error) {
      for (const { reject } of calls) reject(error);
    }
  }
}

export type Outcome<Result> = { readonly result: Result } | { readonly error: unknown };

interface Call<Item, Result> {
  readonly item: Item;
  readonly resolve: (result: Result) => void;
  readonly reject: (error: unknown) => void;
}
