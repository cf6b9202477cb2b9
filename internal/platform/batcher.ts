/**
 * Natural batching: a lone call goes at once, and the calls that come while the slots are busy form the next batch by
 * themselves. No timer; the busier it gets, the larger the batches and the smaller the cost of each call.
 */
export class Batcher<Item, Result> {
  readonly #run: (items: readonly Item[]) => Promise<readonly Outcome<Result>[]>;
  readonly #maxItems: number;
  readonly #maxInFlight: number;
  #waiting: Call<Item, Result>[] = [];
  #inFlight = 0;
  #planned = false;

  /** `run` gives one outcome for each item, in order; when it rejects, every call of the batch does. It must end in time. */
  constructor(options: {
    readonly run: (items: readonly Item[]) => Promise<readonly Outcome<Result>[]>;
    readonly maxItems: number;
    readonly maxInFlight: number;
  }) {
    this.#run = options.run;
    this.#maxItems = options.maxItems;
    this.#maxInFlight = options.maxInFlight;
  }

  /** Callers are bounded by what they do at once, so the waiting calls are, too. */
  call(item: Item): Promise<Result> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ item, resolve, reject });
      if (this.#planned || this.#inFlight >= this.#maxInFlight) return;
      this.#planned = true;
      // Calls of this turn of the event loop share a batch.
      setImmediate(() => {
        this.#planned = false;
        this.#dispatch();
      });
    });
  }

  #dispatch(): void {
    while (this.#waiting.length > 0 && this.#inFlight < this.#maxInFlight) {
      void this.#send(this.#waiting.splice(0, this.#maxItems));
    }
  }

  async #send(calls: readonly Call<Item, Result>[]): Promise<void> {
    this.#inFlight += 1;
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
    } finally {
      this.#inFlight -= 1;
      this.#dispatch();
    }
  }
}

/** What came of one item of a batch. */
export type Outcome<Result> = { readonly result: Result } | { readonly error: unknown };

interface Call<Item, Result> {
  readonly item: Item;
  readonly resolve: (result: Result) => void;
  readonly reject: (error: unknown) => void;
}
