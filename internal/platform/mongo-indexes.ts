/**
 * First contact with MongoDB: indexes that every process ensures and verifies for itself, until
 * they are as defined.
 */
import { isDeepStrictEqual } from 'node:util';
import {
  MongoServerError,
  type CreateIndexesOptions,
  type Db,
  type Document,
  type IndexDescription,
  type IndexSpecification,
  type MongoClient,
} from 'mongodb';
import { retryUntilDone } from './deadline.ts';
import type { Logger } from './log.ts';
import { mongoReason } from './mongo.ts';

/**
 * An index a collection must have. Duplicate-key messages quote its `name`, so that tells what is
 * unique.
 */
export interface IndexDefinition {
  readonly collection: string;
  readonly name: string;
  readonly key: Record<string, 1 | -1>;
  readonly unique?: true;
  readonly sparse?: true;
  readonly partialFilterExpression?: Record<string, unknown>;
  readonly expireAfterSeconds?: number;
}

/** Something about indexes or rights that only an operator can change, in words for them. */
export class IndexError extends Error {
  override readonly name = 'IndexError';
}

/**
 * Building an index takes minutes in a large collection, and its command is answered at the end.
 * One command waits for the whole build: to give up and ask again would only keep the server busy.
 * A server that dies ends the wait at once.
 */
const BUILD_TIMEOUT_MS = 3_600_000;
/** A build that takes longer than this is told as one. */
const BUILD_TOLD_MS = 5_000;

const UNAUTHORIZED = 13;
const NO_COLLECTION = 26;
const DUPLICATE_KEY = 11_000;
/** Another definition under this name, or this definition under another name. */
const CONFLICTS = [67, 85, 86];

/**
 * Creates the indexes that are missing and checks that all are there as defined. Safe to run from
 * many processes at once.
 */
export async function ensureIndexes(
  db: Db,
  definitions: readonly IndexDefinition[],
  building: (words: string) => void = () => {},
): Promise<void> {
  for (const [collection, wanted] of Map.groupBy(
    definitions,
    (definition) => definition.collection,
  )) {
    // Compared first, because a server words its refusal of another definition as it likes.
    for (const index of wanted)
      verify(index, await listIndexes(db, collection), { missing: 'allowed' });
    const names = wanted.map(({ name }) => name).join(', ');
    const told = setTimeout(
      () => building(`indexes of ${collection} are being built: ${names}`),
      BUILD_TOLD_MS,
    );
    try {
      await createIndexes(db, collection, wanted);
    } catch (error) {
      throw inWords(error, `${collection}: indexes ${names}`);
    } finally {
      clearTimeout(told);
    }
    const present = await listIndexes(db, collection);
    for (const index of wanted) verify(index, present, { missing: 'a fault' });
  }
}

async function createIndexes(
  db: Db,
  collection: string,
  wanted: readonly IndexDefinition[],
): Promise<void> {
  const indexes = wanted.map(({ collection: _collection, key, ...options }) => ({
    key: key as Exclude<IndexSpecification, string>,
    ...options,
  }));
  // The driver hands this on to the connection, though its types do not name it.
  const patient: CreateIndexesOptions & { readonly socketTimeoutMS: number } = {
    socketTimeoutMS: BUILD_TIMEOUT_MS,
  };
  await db.collection(collection).createIndexes(indexes as IndexDescription[], patient);
}

async function listIndexes(db: Db, collection: string): Promise<Document[]> {
  try {
    return await db.collection(collection).listIndexes().toArray();
  } catch (error) {
    if (error instanceof MongoServerError && error.code === NO_COLLECTION) return [];
    throw inWords(error, `${collection}: its indexes`);
  }
}

/** What a server says no to, as an operator can act on it; anything else stays what it is. */
function inWords(error: unknown, what: string): unknown {
  if (!(error instanceof MongoServerError)) return error;
  if (error.code === UNAUTHORIZED) {
    return new IndexError(
      `${what}: the user of MONGODB_URI has no right to list or create them; give it readWrite`,
    );
  }
  if (CONFLICTS.includes(Number(error.code))) {
    return new IndexError(
      `${what}: one of them exists under another name or definition; drop that one`,
    );
  }
  if (error.code === DUPLICATE_KEY) {
    return new IndexError(`${what}: documents that are there already have the same unique key`);
  }
  return error;
}

function verify(
  wanted: IndexDefinition,
  present: readonly Document[],
  options: { readonly missing: 'allowed' | 'a fault' },
): void {
  const found = present.find((index) => index['name'] === wanted.name);
  if (found === undefined) {
    if (options.missing === 'allowed') return;
    throw new IndexError(`${wanted.collection}: index ${wanted.name} is missing`);
  }
  const same =
    // The order of keys is part of what an index is.
    JSON.stringify(found['key']) === JSON.stringify(wanted.key) &&
    (found['unique'] === true) === (wanted.unique === true) &&
    (found['sparse'] === true) === (wanted.sparse === true) &&
    isDeepStrictEqual(found['partialFilterExpression'], wanted.partialFilterExpression) &&
    Number(found['expireAfterSeconds'] ?? -1) === (wanted.expireAfterSeconds ?? -1);
  if (same) return;
  throw new IndexError(
    `${wanted.collection}: index ${wanted.name} is not as this version defines it; drop it, and it is made anew`,
  );
}

const FIRST_CONTACT_RETRY = { firstMs: 250, capMs: 3_000 } as const;

/** Something that goes on in the background until it has succeeded once. */
export interface UntilDone {
  readonly whenDone: Promise<void>;
  /** What is still missing, for a readiness probe; empty once done. */
  readonly faults: () => readonly string[];
  readonly stop: () => void;
}

/**
 * Ensures the indexes in the background, again and again until MongoDB is there and they are as
 * defined.
 */
export function ensureIndexesUntilDone(
  db: Db,
  definitions: readonly IndexDefinition[],
  log: Logger,
): UntilDone {
  return untilDone('indexes could not be verified', db.client, log, (tell) =>
    ensureIndexes(db, definitions, tell),
  );
}

/**
 * Connects in the background, again and again until it has worked once; from then on the driver
 * reconnects by itself.
 */
export function connectUntilDone(client: MongoClient, log: Logger): UntilDone {
  return untilDone('not connected to MongoDB', client, log, () => Promise.resolve());
}

function untilDone(
  what: string,
  client: MongoClient,
  log: Logger,
  task: (tell: (words: string) => void) => Promise<void>,
): UntilDone {
  const stop = new AbortController();
  let faults = [`${what} yet`];
  const tell = (reason: string, error?: unknown): void => {
    if (faults[0] === reason) return;
    faults = [reason];
    log.warn({ ...(error === undefined ? {} : { err: error }), reason }, `${what}; trying again`);
  };
  const attempt = async (): Promise<void> => {
    // A client whose first connection failed stays closed until it is told to connect again.
    await client.connect();
    await task(tell);
  };
  const whenDone = retryUntilDone(attempt, {
    ...FIRST_CONTACT_RETRY,
    signal: stop.signal,
    onFailure: (error) =>
      tell(error instanceof IndexError ? error.message : mongoReason(client, error), error),
  }).then(() => {
    faults = [];
  });
  return { whenDone, faults: () => faults, stop: () => stop.abort() };
}
