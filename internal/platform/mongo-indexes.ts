/** Connects to MongoDB in the background, creates missing indexes and verifies all. */
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
import type { Probe } from './admin-server.ts';
import { retryUntilDone } from './deadline.ts';
import { defined } from './defined.ts';
import type { Logger } from './log.ts';
import { connectMongo, mongoReason } from './mongo.ts';

/** Duplicate-key messages quote `name`, so it says what is unique. */
export interface IndexDefinition {
  readonly collection: string;
  readonly name: string;
  readonly key: Record<string, 1 | -1>;
  readonly unique?: true;
  readonly sparse?: true;
  readonly partialFilterExpression?: Record<string, unknown>;
  readonly expireAfterSeconds?: number;
}

/** A fault that only an operator can fix. */
export class IndexError extends Error {
  override readonly name = 'IndexError';
}

/**
 * The server answers after the whole build, which may take minutes. A retry would only add load. If
 * the server dies, the wait ends at once.
 */
const BUILD_TIMEOUT_MS = 3_600_000;
const REPORT_BUILD_AFTER_MS = 5_000;

const UNAUTHORIZED = 13;
const NO_COLLECTION = 26;
const DUPLICATE_KEY = 11_000;
/** The index exists under another name or definition. */
const CONFLICTS = [67, 85, 86];

/** Safe to run from many processes at once. */
export async function ensureIndexes(
  db: Db,
  definitions: readonly IndexDefinition[],
  building: (words: string) => void = () => {},
): Promise<void> {
  for (const [collection, wanted] of Map.groupBy(
    definitions,
    (definition) => definition.collection,
  )) {
    // Servers word their refusals differently, so we compare first.
    for (const index of wanted)
      verify(index, await listIndexes(db, collection), { missing: 'allowed' });
    const names = wanted.map(({ name }) => name).join(', ');
    const report = setTimeout(
      () => building(`indexes of ${collection} are being built: ${names}`),
      REPORT_BUILD_AFTER_MS,
    );
    try {
      await createIndexes(db, collection, wanted);
    } catch (error) {
      throw forOperator(error, `${collection}: indexes ${names}`);
    } finally {
      clearTimeout(report);
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
  // The driver uses this option, although its types omit it.
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
    throw forOperator(error, `${collection}: its indexes`);
  }
}

function forOperator(error: unknown, what: string): unknown {
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
    // The order of keys is part of an index.
    JSON.stringify(found['key']) === JSON.stringify(wanted.key) &&
    (found['unique'] === true) === (wanted.unique === true) &&
    (found['sparse'] === true) === (wanted.sparse === true) &&
    isDeepStrictEqual(found['partialFilterExpression'], wanted.partialFilterExpression) &&
    Number(found['expireAfterSeconds'] ?? -1) === (wanted.expireAfterSeconds ?? -1);
  if (same) return;
  throw new IndexError(
    `${wanted.collection}: index ${wanted.name} is not as this version defines it; drop it, and it is made again`,
  );
}

const CONNECT_WITHIN_MS = 10_000;
const FIRST_CONTACT_RETRY = { firstMs: 250, capMs: 3_000 } as const;

export interface UntilDone {
  readonly whenDone: Promise<void>;
  /** For a readiness probe; empty once done. */
  readonly faults: () => readonly string[];
  /** Silent until done: what follows from a cause is not told beside it. */
  readonly hides: (consequences: Probe) => Probe;
  readonly stop: () => void;
}

export function ensureIndexesUntilDone(
  db: Db,
  definitions: readonly IndexDefinition[],
  log: Logger,
): UntilDone {
  return untilDone('indexes could not be verified', db.client, log, (report) =>
    ensureIndexes(db, definitions, report),
  );
}

/** Once connected, the driver reconnects by itself. */
export function connectUntilDone(client: MongoClient, log: Logger): UntilDone {
  return untilDone('not connected to MongoDB', client, log, () => Promise.resolve());
}

function untilDone(
  what: string,
  client: MongoClient,
  log: Logger,
  task: (report: (words: string) => void) => Promise<void>,
): UntilDone {
  const stop = new AbortController();
  let faults = [`${what} yet`];
  const report = (reason: string, error?: unknown): void => {
    if (faults[0] === reason) return;
    faults = [reason];
    log.warn({ ...defined({ err: error }), reason }, `${what}; trying again`);
  };
  const attempt = async (): Promise<void> => {
    // After a failed first connection the client stays closed until `connect` is called again.
    await connectMongo(client, CONNECT_WITHIN_MS);
    await task(report);
  };
  const whenDone = retryUntilDone(attempt, {
    ...FIRST_CONTACT_RETRY,
    signal: stop.signal,
    onFailure: (error) =>
      report(error instanceof IndexError ? error.message : mongoReason(client, error), error),
  }).then(() => {
    faults = [];
  });
  return {
    whenDone,
    faults: () => faults,
    hides: (consequences) => () => (faults.length > 0 ? [] : consequences()),
    stop: () => stop.abort(),
  };
}
