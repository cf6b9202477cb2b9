/**
 * What the mongodb driver makes of a collection: the calls our stores use, each of which may get
 * lost on its way.
 */
import { MongoServerError, MongoWriteConcernError, type Collection, type Db } from 'mongodb';
import { createMongo, type UpdateItem } from '../../internal/platform/mongo.ts';
import type {
  Document,
  FindOptions,
  MemoryCollection,
  Stored,
  UpdateOptions,
  UpdateOutcome,
} from './memory-collection.ts';

/** Carries a call to the database and its answer back. */
export type Wire = <T>(execute: () => T) => Promise<T>;

/** What a test may make of an update on its way, to break the code that sends it. */
export type Tamper = (sent: { readonly filter: Document; readonly update: Document }) => {
  readonly filter: Document;
  readonly update: Document;
};

/** What a write waits for, as a command or the driver words it. */
export interface WriteConcern {
  readonly w?: unknown;
  readonly j?: boolean;
  readonly journal?: boolean;
}

/** What the service's clients ask for where a call does not say. The client is never connected. */
const clientConcern: WriteConcern =
  createMongo('mongodb://simulated.invalid', 'simulation').db().writeConcern ?? {};

const isDurable = ({ w, j, journal }: WriteConcern): boolean =>
  w === 'majority' && (j ?? journal) === true;

export interface DriverOptions {
  readonly tamper?: Tamper;
  /** The write concern of every write, in place of the service's own. */
  readonly concern?: WriteConcern | undefined;
  /** Whether the next write reaches a majority in time. */
  readonly replicates?: () => boolean;
  /** Whether a query surely finds nothing and would be answered: it takes no time then. */
  readonly findsNothing?: (filter: Document) => boolean;
}

const WRITE_CONCERN_TIMED_OUT = 64;

/** `documents` as a driver's collection whose every call goes over `wire`. */
export function driverOf<T extends { _id: string }>(
  documents: MemoryCollection,
  wire: Wire,
  {
    tamper = (sent) => sent,
    concern,
    replicates = () => true,
    findsNothing = () => false,
  }: DriverOptions = {},
): Collection<T> {
  const update = (filter: Document, changes: Document, options: UpdateOptions): UpdateOutcome => {
    const sent = tamper({ filter, update: changes });
    return documents.update(sent.filter, sent.update, options);
  };
  /**
   * A write as durable as it asks to be; one that asks for more than it gets is applied and ends
   * with an error.
   */
  const write = <R>(
    apply: (durable: boolean) => R,
    asked: WriteConcern = clientConcern,
  ): Promise<R> =>
    wire(() => {
      const wanted = isDurable(concern ?? asked);
      const durable = wanted && replicates();
      const result = apply(durable);
      if (wanted === durable) return result;
      const writeConcernError = {
        code: WRITE_CONCERN_TIMED_OUT,
        errmsg: 'waiting for replication timed out',
      };
      throw new MongoWriteConcernError({ ok: 1, ...result, writeConcernError });
    });
  /** An unordered write of several items: each on its own, and the server's account of them all. */
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
            (n, _id) => n + update({ ...q, _id }, u, { durable }).matchedCount,
            0,
          );
        }
        const { matchedCount, upsertedCount } = update(q, u, { upsert, durable });
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
    findOne: (filter: Document) => wire(() => documents.find(filter, { limit: 1 })[0] ?? null),
    insertOne: (document: Stored) => write((durable) => documents.insert(document, { durable })),
    updateOne: (filter: Document, changes: Document) =>
      write((durable) => update(filter, changes, { durable })),
    findOneAndUpdate: (filter: Document, changes: Document, options: FindOptions) =>
      write((durable) => {
        const { after } = update(filter, changes, { durable });
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
  };
  return collection as unknown as Collection<T>;
}

/** A driver's database of these collections. */
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
