/** MongoDB clients that write durably, and indexes that every process ensures and verifies for itself. */
import { retryUntilDone } from './deadline.ts';
import type { Logger } from './log.ts';
import { MongoClient, type Db, type IndexSpecification, type MongoClientOptions } from 'mongodb';

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

/** An index a collection must have. `name` is what duplicate-key messages quote, so it tells what is unique. */
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
      wanted.map(({ collection: _, key, ...options }) => ({
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

/**
 * The name of the unique index a write hit, or undefined for any other error.
 * MongoDB writes `index: NAME dup key`, FerretDB `Index 'NAME'`; neither form is parsed anywhere else.
 */
export function duplicateKeyIndex(error: unknown): string | undefined {
  if (!(error instanceof Error) || (error as { code?: unknown }).code !== DUPLICATE_KEY) return undefined;
  return (
    /index: (?:[^ ]*\$)?(\S+) dup key/.exec(error.message)?.[1] ??
    /Index '([^']+)'/.exec(error.message)?.[1] ??
    'unknown'
  );
}

/** Whether a write met a document that already exists under a unique index. */
export function isDuplicateKey(error: unknown): boolean {
  return (error as { code?: unknown } | null)?.code === DUPLICATE_KEY;
}

const INDEX_RETRY = { firstMs: 250, capMs: 3_000 } as const;

/** Ensures the indexes in the background, again and again until MongoDB is there and they are as defined. */
export function ensureIndexesUntilDone(db: Db, definitions: readonly IndexDefinition[], log: Logger) {
  const stop = new AbortController();
  let done = false;
  const whenDone = retryUntilDone(() => ensureIndexes(db, definitions), {
    ...INDEX_RETRY,
    signal: stop.signal,
    onFailure: (error, attempt) => {
      // An index that differs is told in words: nothing mends that but an operator. The rest is an outage.
      const reason = error instanceof IndexError ? error.message : 'is MongoDB reachable?';
      if (attempt === 1 || error instanceof IndexError)
        log.warn({ err: error, reason }, 'indexes could not be verified; trying again');
    },
  }).then(() => {
    done = !stop.signal.aborted;
  });
  return { whenDone, done: () => done, stop: () => stop.abort() };
}
