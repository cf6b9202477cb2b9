/**
 * Natural batching: items that arrive while all slots are busy form the next batch.
 *
 * There is no timer, so a single item leaves at once.
 */
export interface Batcher<Item> {
  readonly inFlight: ReadonlySet<readonly Item[]>;
  /** Sends after the event loop has read its input, so that items of one turn share a batch. */
  plan(): void;
}

/** What one of several calls gets from their common answer. */
export type JoinedAnswer<Answer> = { readonly answer: Answer } | { readonly error: unknown };

/** One batch is answered while the next is sent. */
const JOINED_IN_FLIGHT = 2;

/**
 * Makes one call of those that wait at the same moment, at most `most` together. `answer` gives one
 * outcome for each, in order; if it rejects, all do. Its callers bound how many wait.
 */
export function joinCalls<Call, Answer>(
  most: number,
  answer: (calls: readonly Call[]) => Promise<readonly JoinedAnswer<Answer>[]>,
): (call: Call) => Promise<Answer> {
  interface Waiting extends PromiseWithResolvers<Answer> {
    readonly call: Call;
  }
  const waiting: Waiting[] = [];
  const batcher = newBatcher<Waiting>(
    JOINED_IN_FLIGHT,
    () => waiting.splice(0, most),
    async (batch) => {
      try {
        const outcomes = await answer(batch.map(({ call }) => call));
        for (const [index, { resolve, reject }] of batch.entries()) {
          const outcome = outcomes[index]!;
          if ('error' in outcome) reject(outcome.error);
          else resolve(outcome.answer);
        }
      } catch (error) {
        for (const { reject } of batch) reject(error);
      }
    },
  );
  return (call) => {
    const settled = Promise.withResolvers<Answer>();
    waiting.push({ call, ...settled });
    batcher.plan();
    return settled.promise;
  };
}

/** `next` returns the next batch, which may be empty. `send` must end and never reject. */
export function newBatcher<Item>(
  maxInFlight: number,
  next: () => readonly Item[],
  send: (batch: readonly Item[]) => Promise<void>,
): Batcher<Item> {
  const inFlight = new Set<readonly Item[]>();
  let planned = false;
  const dispatch = (): void => {
    planned = false;
    while (inFlight.size < maxInFlight) {
      const batch = next();
      if (batch.length === 0) return;
      inFlight.add(batch);
      void send(batch).then(() => {
        inFlight.delete(batch);
        dispatch();
      });
    }
  };
  const plan = (): void => {
    if (planned || inFlight.size >= maxInFlight) return;
    planned = true;
    setImmediate(dispatch);
  };
  return { inFlight, plan };
}
