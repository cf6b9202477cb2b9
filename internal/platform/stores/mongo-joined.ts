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
  updateOf,
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

/** An update of the documents in `ids`, which are all different, that match `q`. */
export interface Statement {
  readonly ids: readonly string[];
  readonly q: Document;
  readonly u: Document;
}

/**
 * Sends them in one command, in the order of ids. The documents of a statement that fails are sent
 * again, each alone. `n` is how many matched; `failed` has each statement's ids that failed, with
 * the error. Rejects without an answer, or with `NotDurableError`.
 */
export async function updateEach<One extends Statement, T extends Document>(
  collection: Collection<T>,
  statements: readonly One[],
): Promise<{
  readonly n: number;
  readonly failed: ReadonlyMap<One, ReadonlyMap<string, unknown>>;
}> {
  const send = (parts: readonly { readonly of: One; readonly ids: readonly string[] }[]) =>
    sendPastLockConflicts(parts, async (some) => {
      const updates = some.map(({ of: { q, u }, ids }) => updateOf(ids, q, u));
      return requireDurable(await writeTogether(collection, { updates }));
    });
  const whole = statements
    .map((of) => ({ of, ids: of.ids.toSorted() }))
    .toSorted((one, other) => (one.ids[0]! < other.ids[0]! ? -1 : 1));
  const sent = await send(whole);
  const single = [...sent.failed].flatMap(([{ of, ids }]) =>
    ids.length === 1 ? [] : ids.map((id) => ({ of, ids: [id] })),
  );
  const again = await send(single);
  const failed = new Map<One, Map<string, unknown>>();
  for (const [{ of, ids }, error] of [...sent.failed, ...again.failed]) {
    if (ids.length > 1) continue;
    failed.set(of, (failed.get(of) ?? new Map<string, unknown>()).set(ids[0]!, error));
  }
  return { n: sent.n + again.n, failed };
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
    const { n, failed } = await updateEach(collection, statements);
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
