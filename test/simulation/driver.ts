/** A model of the mongodb driver's collection, whose calls may get lost. */
import { MongoServerError, MongoWriteConcernError, type Collection, type Db } from 'mongodb';
import { createMongo, type UpdateItem } from '../../internal/platform/stores/mongo.ts';
import type {
  Document,
  FindOptions,
  MemoryCollection,
  Stored,
  UpdateOptions,
} from './memory-collection.ts';

/** Carries a call to the database and its answer back. */
export type Wire = <T>(execute: () => T) => Promise<T>;

interface WriteConcern {
  readonly w?: unknown;
  readonly j?: boolean;
  readonly journal?: boolean;
}

/** The write concern of the service's clients. */
const clientConcern: WriteConcern =
  createMongo('mongodb://simulated.invalid', 'simulation').db().writeConcern ?? {};

const isDurable = ({ w, j, journal }: WriteConcern): boolean =>
  w === 'majority' && (j ?? journal) === true;

interface DriverOptions {
  readonly replicates?: () => boolean;
  /** Whether a query would find nothing; such a query takes no simulated time. */
  readonly findsNothing?: (filter: Document) => boolean;
}

const WRITE_CONCERN_TIMED_OUT = 64;

/** Returns `documents` as a driver's collection behind `wire`. */
export function driverOf<T extends { _id: string }>(
  documents: MemoryCollection,
  wire: Wire,
  { replicates = () => true, findsNothing = () => false }: DriverOptions = {},
): Collection<T> {
  /** Applies a write, and fails it if it asks for more durability than there is. */
  const write = <R>(
    apply: (durable: boolean) => R,
    asked: WriteConcern = clientConcern,
  ): Promise<R> =>
    wire(() => {
      const wanted = isDurable(asked);
      const durable = wanted && replicates();
      const result = apply(durable);
      if (wanted === durable) return result;
      const writeConcernError = {
        code: WRITE_CONCERN_TIMED_OUT,
        errmsg: 'waiting for replication timed out',
      };
      throw new MongoWriteConcernError({ ok: 1, ...result, writeConcernError });
    });
  /** An unordered write of several items, with the server's counts. */
  const writeTogether = (command: WriteCommand, durable: boolean): Document => {
    const items: readonly (() => number)[] = [
      ...(command.documents ?? []).map((document) => () => {
        documents.insert(document, { durable });
        return 1;
      }),
      ...(command.updates ?? []).map(({ q, u, upsert, multi }) => () => {
        if (multi === true) {
          const ids = new Set((q['_id'] as { readonly $in: readonly string[] }).$in);
          return [...ids].reduce(
            (n, _id) => n + documents.update({ ...q, _id }, u, { durable }).matchedCount,
            0,
          );
        }
        const { matchedCount, upsertedCount } = documents.update(q, u, { upsert, durable });
        return matchedCount + upsertedCount;
      }),
    ];
    let n = 0;
    const writeErrors: { readonly index: number; readonly code: unknown }[] = [];
    for (const [index, item] of items.entries()) {
      try {
        n += item();
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
      batchSize: () => find(filter, options),
      toArray: () =>
        findsNothing(filter) ? Promise.resolve([]) : wire(() => documents.find(filter, options)),
    };
    return cursor;
  };
  const collection = {
    collectionName: 'simulated',
    dbName: 'simulated',
    db: {
      command: (command: WriteCommand) =>
        write((durable) => writeTogether(command, durable), command.writeConcern),
    },
    find,
    findOne: (filter: Document, options: FindOptions = {}) =>
      wire(() => documents.find(filter, { ...options, limit: 1 })[0] ?? null),
    insertOne: (document: Stored) => write((durable) => documents.insert(document, { durable })),
    updateOne: (filter: Document, changes: Document, { upsert }: UpdateOptions = {}) =>
      write((durable) => documents.update(filter, changes, { durable, upsert })),
    findOneAndUpdate: (filter: Document, changes: Document, options: FindOptions) =>
      write((durable) => {
        const { after } = documents.update(filter, changes, { durable });
        if (after === undefined) return null;
        return options.projection === undefined
          ? after
          : documents.find({ _id: after._id }, options)[0];
      }),
    estimatedDocumentCount: () => wire(() => documents.all().length),
    countDocuments: (filter: Document, options: FindOptions = {}) =>
      wire(() => documents.find(filter, options).length),
    deleteOne: (filter: Document) =>
      write((durable) => ({ deletedCount: documents.delete(filter, { durable }) })),
    deleteMany: (filter: Document) =>
      write((durable) => ({ deletedCount: documents.deleteAll(filter, { durable }) })),
  };
  return collection as unknown as Collection<T>;
}

export function databaseOf(
  collections: Readonly<Record<string, unknown>>,
  hello: () => Promise<Document> = () => Promise.resolve({ localTime: new Date() }),
): Db {
  return {
    collection: (name: string) => collections[name],
    command: hello,
  } as unknown as Db;
}

interface WriteCommand {
  readonly documents?: readonly Stored[];
  readonly updates?: readonly UpdateItem[];
  readonly writeConcern?: WriteConcern;
}
