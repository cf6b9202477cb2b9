/**
 * Natural batching: a lone item leaves at once, and the items that come while all slots are busy
 * form the next batch. There is no timer. The busier it gets, the larger the batches and the
 * smaller the cost of each item.
 */
export interface Dispatcher<Item> {
  readonly inFlight: ReadonlySet<readonly Item[]>;
  /**
   * Sends what waits, after the event loop has read what has arrived: items of one turn share a
   * batch.
   */
  plan(): void;
}

/**
 * `take` gives the next batch, empty when nothing waits. `send` never rejects, and ends in time.
 */
export function newDispatcher<Item>(
  maxInFlight: number,
  take: () => readonly Item[],
  send: (batch: readonly Item[]) => Promise<void>,
): Dispatcher<Item> {
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
