/**
 * Writes of single documents that wait at the same moment leave in one command. Each gets its own
 * outcome, and one that fails fails alone.
 */
import type { Collection, Document, Filter } from 'mongodb';
import { joinCalls, type JoinedAnswer } from '../process/batcher.ts';
import {
  isDuplicateKey,
  requireDurable,
  sendPastLockConflicts,
  updateEach,
  type UpdateOfSome,
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

/**
 * Sends them in one command; the ids of an update are all different. The documents of one that fails
 * are sent again, each alone. `n` is how many matched; `failed` has each update's ids that failed,
 * with the error. Rejects with `NotDurableError`.
 */
export async function updateApart<T extends Document, Update extends UpdateOfSome>(
  collection: Collection<T>,
  updates: readonly Update[],
): Promise<{
  readonly n: number;
  readonly failed: ReadonlyMap<Update, ReadonlyMap<string, unknown>>;
}> {
  const together = await updateEach(collection, updates);
  const single = [...together.failed.keys()].flatMap((of) =>
    of.ids.length === 1 ? [] : of.ids.map((id) => ({ of, ids: [id], q: of.q, u: of.u })),
  );
  const apart = await updateEach(collection, single);
  const failed = new Map<Update, Map<string, unknown>>();
  const note = (of: Update, id: string, error: unknown): void =>
    void failed.set(of, (failed.get(of) ?? new Map<string, unknown>()).set(id, error));
  for (const [of, error] of together.failed) if (of.ids.length === 1) note(of, of.ids[0]!, error);
  for (const [{ of, ids }, error] of apart.failed) note(of, ids[0]!, error);
  return { n: together.n + apart.n, failed };
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
    const { n, failed } = await updateApart(collection, statements);
    const ids = statements.flatMap((one) => one.ids.filter((id) => !failed.get(one)?.has(id)));
    const after = n === ids.length ? undefined : await read(ids);
    for (const statement of statements) {
      const { items, update } = statement;
      for (const item of items) {
        const error = failed.get(statement)?.get(item.id);
        const document = after?.get(item.id);
        const isMade = after === undefined || (document !== undefined && update.shows(document));
        const answer = isMade ? update : undefined;
        outcomes.set(item, error === undefined ? { answer } : { error });
      }
    }
    return wanted.map((item) => outcomes.get(item)!);
  });
}
