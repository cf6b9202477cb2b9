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

/** `take` returns the next batch, which may be empty. `send` must end and never reject. */
export function newBatcher<Item>(
  maxInFlight: number,
  take: () => readonly Item[],
  send: (batch: readonly Item[]) => Promise<void>,
): Batcher<Item> {
  const inFlight = new Set<readonly Item[]>();
  let planned = false;
  const dispatch = (): void => {
    planned = false;
    while (inFlight.size < maxInFlight) {
      const batch = take();
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
