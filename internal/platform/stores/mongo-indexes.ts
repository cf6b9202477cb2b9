/** Connects to MongoDB in the background and creates missing indexes. */
import { MongoServerError, type Db } from 'mongodb';
import type { Probe, Fault } from '../process/fault.ts';
import { retryUntilDone } from '../process/deadline.ts';
import { defined } from '../process/defined.ts';
import type { Logger } from '../process/log.ts';
import { lacksLogin, namedIn, saidBy } from '../process/server-words.ts';
import { answeredWithin } from './inside-mongodb.ts';
import { connectMongo, mongoFault } from './mongo.ts';

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
class IndexError extends Error {
  override readonly name = 'IndexError';
}

/**
 * The server answers after the whole build, which may take minutes. A retry would only add load. If
 * the server dies, the wait ends at once.
 */
const BUILD_TIMEOUT_MS = 3_600_000;
const REPORT_BUILD_AFTER_MS = 5_000;

const UNAUTHORIZED = 13;
const DUPLICATE_KEY = 11_000;
/** The index exists under another name or definition. */
const CONFLICTS = [85, 86];

/** Safe to run from many processes at once. */
export async function ensureIndexes(
  db: Db,
  definitions: readonly IndexDefinition[],
  building: (words: string) => void = () => {},
): Promise<void> {
  for (const [collection, wanted] of Map.groupBy(definitions, (index) => index.collection)) {
    const names = wanted.map(({ name }) => name);
    const report = setTimeout(
      () => building(`indexes of ${collection} are being built: ${names.join(', ')}`),
      REPORT_BUILD_AFTER_MS,
    );
    try {
      await createIndexes(db, collection, wanted);
    } catch (error) {
      throw forOperator(error, collection, names);
    } finally {
      clearTimeout(report);
    }
  }
}

async function createIndexes(
  db: Db,
  collection: string,
  wanted: readonly IndexDefinition[],
): Promise<void> {
  const indexes = wanted.map(({ collection: _collection, ...index }) => index);
  await db.collection(collection).createIndexes(indexes, answeredWithin(BUILD_TIMEOUT_MS));
}

function forOperator(error: unknown, collection: string, names: readonly string[]): unknown {
  if (!(error instanceof MongoServerError)) return error;
  const { code, message } = error;
  const all = `${collection}: indexes ${names.join(', ')}`;
  const faulty = (words: string) => new IndexError(words, { cause: error });
  if (code === UNAUTHORIZED && !lacksLogin(error))
    return faulty(`${all}: the user of MONGODB_URI has no right to create them; give it readWrite`);
  if (CONFLICTS.includes(Number(code))) {
    const [first = all] = namedIn(message, names).map((name) => `${collection}: index ${name}`);
    return faulty(
      `${first} exists under another name or definition; drop it, and it is made again`,
    );
  }
  if (code === DUPLICATE_KEY)
    return faulty(`${all}: documents that are there already have the same unique key`);
  return error;
}

const CONNECT_WITHIN_MS = 10_000;
const FIRST_CONTACT_RETRY = { firstMs: 250, capMs: 3_000 } as const;

/** Connects until it succeeds, and ensures `indexes`. The driver then reconnects by itself. */
export function makeFirstContact(db: Db, indexes: readonly IndexDefinition[], log: Logger) {
  const what = indexes.length > 0 ? 'indexes could not be verified' : 'not connected to MongoDB';
  const stop = new AbortController();
  let fault: Fault | undefined = { code: 'not_connected', of: 'MongoDB', words: `${what} yet` };
  const report = (found: Fault, error?: unknown): void => {
    const { words: reason } = found;
    if (fault?.words === reason) return;
    fault = found;
    const said = error === undefined ? undefined : saidBy(error);
    log.warn({ ...defined({ err: error, said }), reason }, `${what}; trying again`);
  };
  const ofIndexes = (words: string): Fault => ({ code: 'indexes', of: 'MongoDB', words });
  const attempt = async (): Promise<void> => {
    // After a failed first connection the client stays closed until `connect` is called again.
    await connectMongo(db.client, CONNECT_WITHIN_MS);
    await ensureIndexes(db, indexes, (words) => report(ofIndexes(words)));
  };
  const untilDone = async (): Promise<void> => {
    await retryUntilDone(attempt, {
      ...FIRST_CONTACT_RETRY,
      signal: stop.signal,
      onFailure: (error) =>
        report(
          error instanceof IndexError ? ofIndexes(error.message) : mongoFault(db.client, error),
          error,
        ),
    });
    fault = undefined;
  };
  const whenDone = untilDone();
  return {
    whenDone,
    /** A readiness probe; empty once done. */
    faults: (): readonly Fault[] => (fault === undefined ? [] : [fault]),
    /** Silences faults that only follow from this one. */
    hides:
      (consequences: Probe): Probe =>
      () =>
        fault === undefined ? consequences() : [],
    /** A database that was emptied lost its indexes, too: without unique ones nothing is ready. */
    again: (): void => {
      if (fault !== undefined || indexes.length === 0) return;
      report(ofIndexes('the database was emptied or replaced: its indexes are verified again'));
      void untilDone();
    },
    stop: (): void => stop.abort(),
  };
}
