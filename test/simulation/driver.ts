/** What the mongodb driver makes of a collection: the calls our stores use, each of which may get lost on its way. */
import { MongoServerError, type Collection } from 'mongodb';
import type { UpdateItem } from '../../internal/platform/mongo.ts';
import type { Document, FindOptions, MemoryCollection, Stored, UpdateOutcome } from './memory-collection.ts';

/** Carries a call to the database and its answer back. */
export type Wire = <T>(execute: () => T) => Promise<T>;

/** What a test may make of an update on its way, to break the code that sends it. */
export type Tamper = (sent: { readonly filter: Document; readonly update: Document }) => {
  readonly filter: Document;
  readonly update: Document;
};

/** `documents` as a driver's collection whose every call goes over `wire`. */
export function driverOf<T extends { _id: string }>(
  documents: MemoryCollection,
  wire: Wire,
  tamper: Tamper = (sent) => sent,
): Collection<T> {
  const update = (filter: Document, changes: Document, upsert?: boolean): UpdateOutcome => {
    const sent = tamper({ filter, update: changes });
    return documents.update(sent.filter, sent.update, { upsert });
  };
  /** An unordered write of several items: each on its own, and the server's account of them all. */
  const writeTogether = (command: WriteCommand): Document => {
    const items: readonly (() => number)[] = [
      ...(command.documents ?? []).map((document) => () => {
        documents.insert(document);
        return 1;
      }),
      ...(command.updates ?? []).map(({ q, u, upsert, multi }) => () => {
        if (multi === true) {
          const ids = new Set((q['_id'] as { readonly $in: readonly string[] }).$in);
          return [...ids].reduce((n, _id) => n + update({ ...q, _id }, u).matchedCount, 0);
        }
        const { matchedCount, upsertedCount } = update(q, u, upsert);
        return matchedCount + upsertedCount;
      }),
    ];
    let n = 0;
    const writeErrors: { readonly index: number; readonly code: unknown }[] = [];
    for (const [index, write] of items.entries()) {
      try {
        n += write();
      } catch (error) {
        if (!(error instanceof MongoServerError)) throw error;
        writeErrors.push({ index, code: error.code });
      }
    }
    return { ok: 1, n, ...(writeErrors.length === 0 ? {} : { writeErrors }) };
  };
  const find = (filter: Document, options: FindOptions = {}) => {
    const cursor = {
      sort: (sort: FindOptions['sort']) => find(filter, { ...options, sort }),
      limit: (limit: number) => find(filter, { ...options, limit }),
      toArray: () => wire(() => documents.find(filter, options)),
    };
    return cursor;
  };
  const collection = {
    collectionName: 'simulated',
    dbName: 'simulated',
    db: { command: (command: WriteCommand) => wire(() => writeTogether(command)) },
    find,
    findOne: (filter: Document) => wire(() => documents.find(filter, { limit: 1 })[0] ?? null),
    insertOne: (document: Stored) => wire(() => documents.insert(document)),
    updateOne: (filter: Document, changes: Document) => wire(() => update(filter, changes)),
    findOneAndUpdate: (filter: Document, changes: Document, options: FindOptions) =>
      wire(() => {
        const { after } = update(filter, changes);
        if (after === undefined) return null;
        return options.projection === undefined ? after : documents.find({ _id: after._id }, options)[0];
      }),
    countDocuments: (filter: Document, options: FindOptions = {}) => wire(() => documents.find(filter, options).length),
    deleteOne: (filter: Document) => wire(() => documents.delete(filter)),
  };
  return collection as unknown as Collection<T>;
}

interface WriteCommand {
  readonly documents?: readonly Stored[];
  readonly updates?: readonly UpdateItem[];
}
