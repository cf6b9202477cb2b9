/** MongoDB clients that write durably, and indexes that every process ensures and verifies for itself. */
import './closed-sockets.ts';
import { retryUntilDone, withDeadline } from './deadline.ts';
import type { Logger } from './log.ts';
import type { SpanOptions } from './tracing.ts';
import {
  MongoClient,
  MongoServerError,
  MongoWriteConcernError,
  type Collection,
  type Db,
  type Document,
  type IndexSpecification,
  type MongoClientOptions,
} from 'mongodb';

/** A server that is away is reported within this time instead of the driver's 30 s. */
const SERVER_SELECTION_TIMEOUT_MS = 2_000;
const CONNECT_TIMEOUT_MS = 2_000;
/** An answer that takes longer than this counts as lost and its connection is destroyed. */
const SOCKET_TIMEOUT_MS = 10_000;
const MAX_POOL_SIZE = 32;

/**
 * A client whose every write is majority-committed and journaled and whose reads go to the primary.
 * Connects on first use and again by itself.
 */
export function createMongo(uri: string, appName: string, options: MongoClientOptions = {}): MongoClient {
  return new MongoClient(uri, {
    appName,
    serverSelectionTimeoutMS: SERVER_SELECTION_TIMEOUT_MS,
    connectTimeoutMS: CONNECT_TIMEOUT_MS,
    socketTimeoutMS: SOCKET_TIMEOUT_MS,
    maxPoolSize: MAX_POOL_SIZE,
    writeConcern: { w: 'majority', journal: true },
    readPreference: 'primary',
    ignoreUndefined: true,
    ...options,
  });
}

/** Why a write's connection is destroyed; made once, because an error of its own for each write costs. */
const WRITE_OVER = new Error('the write took too long');
/** What a durable write waits for, in the words of a command. */
const WRITE_CONCERN = { w: 'majority', j: true } as const;

/** One item of an `update` command: the query, the update, whether it may insert, and whether it is for all that match. */
export interface UpdateItem {
  readonly q: Document;
  readonly u: Document;
  readonly upsert?: boolean;
  readonly multi?: boolean;
}

/** The server's own account of a write of several items. */
export interface WriteReply {
  /** Documents inserted, or matched and upserted. */
  readonly n: number;
  readonly writeErrors: readonly { readonly index: number; readonly code: number }[];
  /** False when the items without an error were applied, but not acknowledged as durable. */
  readonly durable: boolean;
}

/** Inserts all documents in one unordered, durable command; see `writeTogether`. */
export function insertTogether<T extends Document>(
  collection: Collection<T>,
  documents: readonly T[],
  deadlineMs: number,
): Promise<WriteReply> {
  return writeTogether(collection.db, { insert: collection.collectionName, documents, ordered: false }, deadlineMs);
}

/** Applies all updates in one unordered, durable command; see `writeTogether`. */
export function updateTogether<T extends Document>(
  collection: Collection<T>,
  updates: readonly UpdateItem[],
  deadlineMs: number,
): Promise<WriteReply> {
  return writeTogether(collection.db, { update: collection.collectionName, updates, ordered: false }, deadlineMs);
}

/** The same update of several documents that meet the rest of its query. */
export interface UpdateOfMany {
  readonly ids: readonly string[];
  readonly q: Document;
  readonly u: Document;
}

/**
 * Applies the updates in one command, a statement each, which costs the server a fraction of one for each document. In
 * the order of ids, as everybody does who writes several: so two writes never wait for each other crosswise.
 */
export function updateInOrder<T extends Document>(
  collection: Collection<T>,
  updates: readonly UpdateOfMany[],
  deadlineMs: number,
): Promise<WriteReply> {
  const items = updates
    .map(({ ids, q, u }) => ({ ids: ids.toSorted(), q, u }))
    .toSorted((one, other) => (one.ids[0]! < other.ids[0]! ? -1 : 1))
    .map(({ ids, q, u }): UpdateItem =>
      ids.length === 1 ? { q: { _id: ids[0], ...q }, u } : { q: { _id: { $in: ids }, ...q }, u, multi: true },
    );
  return updateTogether(collection, items, deadlineMs);
}

/**
 * Resolves only with what the server itself answered; rejects when no answer came within `deadlineMs`, and then destroys
 * the connection, so that it neither leaves the pool for good nor brings the late answer to somebody else. At most 16 MB.
 *
 * The driver's `insertMany` and `bulkWrite` keep neither promise (7.8): a message larger than a socket's buffer that
 * meets a hung server ends with its connection only (closed-sockets.ts), not in time, and a lost connection comes as a
 * bulk write error that looks like success. `command` takes a signal that ends the wait, and tells errors plainly.
 */
async function writeTogether(db: Db, command: Document, deadlineMs: number): Promise<WriteReply> {
  const over = new AbortController();
  try {
    const reply = await withDeadline(
      db.command({ ...command, writeConcern: WRITE_CONCERN }, { signal: over.signal, ignoreUndefined: true }),
      deadlineMs,
      'write',
    );
    return { n: reply['n'], writeErrors: reply['writeErrors'] ?? [], durable: true };
  } catch (error) {
    if (!(error instanceof MongoWriteConcernError)) throw error;
    const reply = error.result;
    return { n: Number(reply['n']), writeErrors: reply['writeErrors'] ?? [], durable: false };
  } finally {
    over.abort(WRITE_OVER);
  }
}

const WRITE_CONFLICT = 112;
const CONFLICT_TRIES = 5;

/**
 * Writes that race for several keys can wait for each other until the server ends one of them: "deadlock detected" in
 * FerretDB, WriteConflict in MongoDB. That is nobody's fault, and trying again settles it.
 */
export function isLockConflict(error: unknown): boolean {
  return error instanceof MongoServerError && (error.code === WRITE_CONFLICT || error.message.includes('deadlock'));
}

/** `write`, tried again at once, five times at most, where it met a lock conflict; doing it twice must change nothing. */
export async function pastLockConflicts<T>(write: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await write();
    } catch (error) {
      if (tries === CONFLICT_TRIES || !isLockConflict(error)) throw error;
    }
  }
}

/** An index a collection must have. Duplicate-key messages quote its `name`, so that tells what is unique. */
export interface IndexDefinition {
  readonly collection: string;
  readonly name: string;
  readonly key: Record<string, 1 | -1>;
  readonly unique?: true;
  readonly sparse?: true;
  readonly partialFilterExpression?: Record<string, unknown>;
  readonly expireAfterSeconds?: number;
}

/** Creates the indexes that are missing and checks that all are there as defined. Safe to run from many processes at once. */
export async function ensureIndexes(db: Db, definitions: readonly IndexDefinition[]): Promise<void> {
  for (const collection of new Set(definitions.map((definition) => definition.collection))) {
    const wanted = definitions.filter((definition) => definition.collection === collection);
    await db.collection(collection).createIndexes(
      wanted.map(({ collection: _collection, key, ...options }) => ({
        key: key as Exclude<IndexSpecification, string>,
        ...options,
      })) as Parameters<ReturnType<Db['collection']>['createIndexes']>[0],
    );
    const present = await db.collection(collection).listIndexes().toArray();
    for (const index of wanted) verify(index, present);
  }
}

function verify(wanted: IndexDefinition, present: readonly Record<string, unknown>[]): void {
  const found = present.find((index) => index['name'] === wanted.name);
  if (found === undefined) throw new IndexError(`${wanted.collection}: index ${wanted.name} is missing`);
  const same =
    JSON.stringify(found['key']) === JSON.stringify(wanted.key) &&
    (found['unique'] === true) === (wanted.unique === true) &&
    Number(found['expireAfterSeconds'] ?? -1) === (wanted.expireAfterSeconds ?? -1);
  if (!same) throw new IndexError(`${wanted.collection}: index ${wanted.name} is not as this version defines it`);
}

export class IndexError extends Error {
  override readonly name = 'IndexError';
}

const DUPLICATE_KEY = 11_000;

/** Whether a write met a document that already exists under a unique index. */
export function isDuplicateKey(error: unknown): boolean {
  return (error as { code?: unknown } | null)?.code === DUPLICATE_KEY;
}

/** A span around one operation on a collection, named by OpenTelemetry's conventions. What is written or sought stays out. */
export function databaseSpan(
  operation: string,
  collection: { readonly dbName: string; readonly collectionName: string },
  attributes: SpanOptions['attributes'] = {},
): SpanOptions {
  return {
    name: `${operation} ${collection.collectionName}`,
    kind: 'CLIENT',
    attributes: {
      'db.system.name': 'mongodb',
      'db.namespace': collection.dbName,
      'db.collection.name': collection.collectionName,
      'db.operation.name': operation,
      ...attributes,
    },
  };
}

const FIRST_CONTACT_RETRY = { firstMs: 250, capMs: 3_000 } as const;

/** Something that goes on in the background until it has succeeded once. */
export interface UntilDone {
  readonly whenDone: Promise<void>;
  /** What is still missing, for a readiness probe; empty once done. */
  readonly faults: () => readonly string[];
  readonly stop: () => void;
}

/** Ensures the indexes in the background, again and again until MongoDB is there and they are as defined. */
export function ensureIndexesUntilDone(db: Db, definitions: readonly IndexDefinition[], log: Logger): UntilDone {
  return untilDone('indexes could not be verified', db.client, log, () => ensureIndexes(db, definitions));
}

/** Connects in the background, again and again until it has worked once; from then on the driver reconnects by itself. */
export function connectUntilDone(client: MongoClient, log: Logger): UntilDone {
  return untilDone('not connected to MongoDB', client, log, () => Promise.resolve());
}

function untilDone(what: string, client: MongoClient, log: Logger, task: () => Promise<void>): UntilDone {
  const stop = new AbortController();
  const where = client.options.hosts.join(', ');
  let faults = [`${what} yet`];
  const attempt = async (): Promise<void> => {
    // A client whose first connection failed stays closed until it is told to connect again.
    await client.connect();
    await task();
  };
  const whenDone = retryUntilDone(attempt, {
    ...FIRST_CONTACT_RETRY,
    signal: stop.signal,
    onFailure: (error, failures) => {
      // An index that differs is told in words, because only an operator can mend it. The rest is an outage.
      const reason =
        error instanceof IndexError
          ? error.message
          : `MongoDB does not answer at ${where}: check that it runs there, that it lets us in, and MONGODB_URI`;
      faults = [reason];
      if (failures === 1 || error instanceof IndexError) log.warn({ err: error, reason }, `${what}; trying again`);
    },
  }).then(() => {
    faults = [];
  });
  return { whenDone, faults: () => faults, stop: () => stop.abort() };
}
