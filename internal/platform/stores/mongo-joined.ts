/**
 * Writes of single documents that wait at the same moment leave in one command. Each gets its own
 * outcome, and one that fails fails alone.
 */
import type { Collection, Document, Filter } from 'mongodb';
import {
  isDuplicateKey,
  requireDurable,
  sendPastLockConflicts,
  updateEach,
  writeTogether,
} from './mongo.ts';
import { bounded } from './mongo-read.ts';

/** Bounds how much work one lost answer leaves in doubt. */
export const JOINED_AT_MOST = 100;

/**
 * Inserts in the order of `keyOf`, so that two processes do not deadlock. The result is false if a
 * unique value of the document is taken.
 */
export function joinInserts<T extends { readonly _id: string }>(
  collection: Collection<T>,
  keyOf: (document: T) => string,
): (document: T) => Promise<boolean> {
  return joinCalls(JOINED_AT_MOST, async (wanted) => {
    const documents = wanted.toSorted((one, other) => (keyOf(one) < keyOf(other) ? -1 : 1));
    const { n, failed } = await sendPastLockConflicts(documents, async (some) =>
      requireDurable(await writeTogether(collection, { documents: some })),
    );
    if (n + failed.size !== documents.length)
      throw new Error('the answer does not account for every document');
    return wanted.map((document): JoinedAnswer<boolean> => {
      const error = failed.get(document);
      if (error === undefined || isDuplicateKey(error)) return { answer: error === undefined };
      return { error };
    });
  });
}

/** An update of one document; repeating it must change nothing. */
export interface OneUpdate<T> {
  /** The condition, without `_id`. */
  readonly q: Document;
  readonly u: Document;
  /** Whether a document that is read afterwards has this update. */
  readonly shows: (after: T) => boolean;
}

interface JoinedUpdate<Update> {
  readonly id: string;
  /** Updates with the same words are built once, and share one statement. */
  readonly alike?: string | undefined;
  /** Called when the command leaves, so that its times are not too early. */
  readonly build: () => Update;
}

/**
 * The result is the update as it was made, or undefined if the document did not match. If not all
 * of a command's documents matched, they are read with the fields that `shows` needs.
 */
export function joinUpdates<T extends { readonly _id: string }, Update extends OneUpdate<T>>(
  collection: Collection<T>,
  fields: Document,
): (wanted: JoinedUpdate<Update>) => Promise<Update | undefined> {
  const read = async (ids: readonly string[]): Promise<Map<string, T>> => {
    const filter = { _id: { $in: ids } } as unknown as Filter<T>;
    const options = { projection: fields, ...bounded };
    const found = (await collection.find(filter, options).toArray()) as unknown as readonly T[];
    return new Map(found.map((document) => [document._id, document]));
  };
  return joinCalls(JOINED_AT_MOST, async (wanted: readonly JoinedUpdate<Update>[]) => {
    const outcomes = new Map<JoinedUpdate<Update>, JoinedAnswer<Update | undefined>>();
    const statements = [...Map.groupBy(wanted, (item) => item.alike ?? item).values()].flatMap(
      (items) => {
        try {
          const update = items[0]!.build();
          const ids = [...new Set(items.map(({ id }) => id))];
          return [{ items, ids, update, q: update.q, u: update.u }];
        } catch (error) {
          for (const item of items) outcomes.set(item, { error });
          return [];
        }
      },
    );
    const { isWhole, failed } = await updateEach(collection, statements);
    const after = isWhole ? undefined : await read(statements.flatMap(({ ids }) => ids));
    for (const statement of statements) {
      const { items, update } = statement;
      for (const item of items) {
        const failure = failed.find(({ of, id }) => of === statement && id === item.id);
        const document = after?.get(item.id);
        const isMade = after === undefined || (document !== undefined && update.shows(document));
        outcomes.set(item, failure ?? { answer: isMade ? update : undefined });
      }
    }
    return wanted.map((item) => outcomes.get(item)!);
  });
}

/*
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
