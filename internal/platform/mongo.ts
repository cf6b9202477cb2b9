/** MongoDB clients, and writes of several items that are durable, or say so in time. */
import './closed-sockets.ts';
import { contactReason } from './contact.ts';
import { withDeadline } from './deadline.ts';
import type { SpanOptions } from './tracing.ts';
import {
  MongoClient,
  MongoServerError,
  MongoWriteConcernError,
  type Collection,
  type Db,
  type Document,
  type MongoClientOptions,
} from 'mongodb';

/** A server that is away is reported within this time instead of the driver's 30 s. */
const SERVER_SELECTION_TIMEOUT_MS = 2_000;
const CONNECT_TIMEOUT_MS = 2_000;
/** An answer that takes longer than this counts as lost and its connection is destroyed. */
const SOCKET_TIMEOUT_MS = 10_000;
const MAX_POOL_SIZE = 32;
/** A write without an answer after this time counts as lost, and its caller tries again. */
const WRITE_DEADLINE_MS = 10_000;
/**
 * A write waits for its majority this share of its deadline. A stall then ends with an answer on a
 * connection that stays open, and not with a new connection for each write and an abandoned one at
 * the server.
 */
const MAJORITY_SHARE = 0.9;

/** What the URI may not say: the driver prefers a part of a write concern there to ours. */
const WRITE_CONCERN_OPTIONS = ['w', 'j', 'journal', 'fsync', 'wtimeout', 'wtimeoutms'];

/**
 * A client whose every write is majority-committed and journaled, whatever the URI says, and whose
 * reads go to the primary. Connects on first use and again by itself.
 */
export function createMongo(
  uri: string,
  appName: string,
  options: MongoClientOptions = {},
): MongoClient {
  const socketTimeoutMS = options.socketTimeoutMS ?? SOCKET_TIMEOUT_MS;
  return new MongoClient(withoutWriteConcern(uri), {
    appName,
    serverSelectionTimeoutMS: SERVER_SELECTION_TIMEOUT_MS,
    connectTimeoutMS: CONNECT_TIMEOUT_MS,
    socketTimeoutMS,
    maxPoolSize: MAX_POOL_SIZE,
    writeConcern: {
      w: 'majority',
      journal: true,
      wtimeoutMS: Math.round(socketTimeoutMS * MAJORITY_SHARE),
    },
    readPreference: 'primary',
    ignoreUndefined: true,
    ...options,
  });
}

/** Why MongoDB cannot be used, for operators: without user and password. */
export function mongoReason(client: MongoClient | undefined, error: unknown): string {
  const at = client?.options.hosts.join(', ') || client?.options.srvHost;
  return contactReason({ name: 'MongoDB', at, setting: 'MONGODB_URI' }, error);
}

function withoutWriteConcern(uri: string): string {
  const [address = '', options = ''] = uri.split('?');
  const kept = options.split('&').filter((option) => {
    const [[name = ''] = []] = new URLSearchParams(option);
    return !WRITE_CONCERN_OPTIONS.includes(name.toLowerCase());
  });
  return kept.length === 0 ? address : `${address}?${kept.join('&')}`;
}

/**
 * Why a write's connection is destroyed; made once, because an error of its own for each write
 * costs.
 */
const WRITE_OVER = new Error('the write took too long');
/**
 * One item of an `update` command: the query, the update, whether it may insert, and whether it is
 * for all that match.
 */
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
  readonly writeErrors: readonly {
    readonly index: number;
    readonly code: number;
    readonly errmsg?: string;
  }[];
  /** False when the items without an error were applied, but not acknowledged as durable. */
  readonly durable: boolean;
}

/** Inserts all documents in one unordered, durable command; see `writeTogether`. */
export function insertTogether<T extends Document>(
  collection: Collection<T>,
  documents: readonly T[],
  deadlineMs = WRITE_DEADLINE_MS,
): Promise<WriteReply> {
  return writeTogether(
    collection.db,
    { insert: collection.collectionName, documents, ordered: false },
    deadlineMs,
  );
}

/**
 * Applies all updates in one unordered, durable command; `majorityMs` bounds its wait for the
 * majority. See `writeTogether`.
 */
export function updateTogether<T extends Document>(
  collection: Collection<T>,
  updates: readonly UpdateItem[],
  deadlineMs = WRITE_DEADLINE_MS,
  majorityMs?: number,
): Promise<WriteReply> {
  const command = { update: collection.collectionName, updates, ordered: false };
  return writeTogether(collection.db, command, deadlineMs, majorityMs);
}

/** The same update of several documents that meet the rest of its query. */
export interface UpdateOfMany {
  readonly ids: readonly string[];
  readonly q: Document;
  readonly u: Document;
}

/**
 * Applies the updates in one command, with one statement for all records of an update, which is
 * cheaper for the server. Every write of several documents is in the order of ids, which prevents
 * deadlocks.
 */
export function updateInOrder<T extends Document>(
  collection: Collection<T>,
  updates: readonly UpdateOfMany[],
): Promise<WriteReply> {
  const items = updates
    .map(({ ids, q, u }) => ({ ids: ids.toSorted(), q, u }))
    .toSorted((one, other) => (one.ids[0]! < other.ids[0]! ? -1 : 1))
    .map(({ ids, q, u }): UpdateItem =>
      ids.length === 1
        ? { q: { _id: ids[0], ...q }, u }
        : { q: { _id: { $in: ids }, ...q }, u, multi: true },
    );
  return writePastLockConflicts(items, (some) => updateTogether(collection, some));
}

/**
 * Resolves only with what the server itself answered; rejects when no answer came within
 * `deadlineMs`, and then destroys the connection, so that it neither leaves the pool for good nor
 * brings the late answer to somebody else. At most 16 MB.
 *
 * The driver's `insertMany` and `bulkWrite` keep neither promise (7.8): a message larger than a
 * socket's buffer that meets a hung server ends with its connection only (closed-sockets.ts), not
 * in time, and a lost connection comes as a bulk write error that looks like success. `command`
 * takes a signal that ends the wait, and tells errors plainly.
 */
async function writeTogether(
  db: Db,
  command: Document,
  deadlineMs: number,
  majorityMs = deadlineMs * MAJORITY_SHARE,
): Promise<WriteReply> {
  const over = new AbortController();
  // What a durable write waits for, in the words of a command, and how long.
  const writeConcern = { w: 'majority', j: true, wtimeout: Math.round(majorityMs) };
  try {
    const reply = await withDeadline(
      db.command({ ...command, writeConcern }, { signal: over.signal, ignoreUndefined: true }),
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

/**
 * The writes were applied, or some of them, but no majority acknowledged them in time: nobody may
 * build on them yet.
 */
export class NotDurableError extends Error {
  override readonly name = 'NotDurableError';
}

/**
 * `reply` where every item was written durably; otherwise throws why not, so that its code tells
 * whose fault it is.
 */
export function requireDurable(reply: WriteReply): WriteReply {
  const [failed] = reply.writeErrors;
  if (failed !== undefined)
    throw new MongoServerError({ message: 'a write failed', code: failed.code });
  if (!reply.durable) throw new NotDurableError('no majority acknowledged the write in time');
  return reply;
}

/**
 * Whether writes become durable now. One that changes nothing waits, like any other, until a
 * majority has all that was written before it. Rejects when no answer came.
 */
export async function takesWrites<T extends Document>(collection: Collection<T>): Promise<boolean> {
  const reply = await updateTogether(collection, [
    { q: { _id: '' }, u: { $set: { probed: true } } },
  ]);
  return reply.durable && reply.writeErrors.length === 0;
}

const WRITE_CONFLICT = 112;
const CONFLICT_TRIES = 5;

/**
 * Writes that race for several keys can wait for each other until the server ends one of them:
 * "deadlock detected" in FerretDB, WriteConflict in MongoDB. That is nobody's fault, and trying
 * again settles it.
 */
export function isLockConflict(error: unknown): boolean {
  return error instanceof MongoServerError && namesLockConflict(error.code, error.message);
}

/** Of a thrown error, or of an item that failed alone, which is no error of the driver. */
function namesLockConflict(code: unknown, text = ''): boolean {
  return code === WRITE_CONFLICT || text.includes('deadlock');
}

/**
 * `write`, tried again at once, five times at most, where it met a lock conflict; doing it twice
 * must change nothing.
 */
export async function pastLockConflicts<T>(write: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await write();
    } catch (error) {
      if (tries === CONFLICT_TRIES || !isLockConflict(error)) throw error;
    }
  }
}

/**
 * `write` of all items, and again, five times at most, of those that met a lock conflict; the
 * result is that of all tries.
 */
export async function writePastLockConflicts<Item>(
  items: readonly Item[],
  write: (items: readonly Item[]) => Promise<WriteReply>,
): Promise<WriteReply> {
  let sent = items.map((item, index) => ({ item, index }));
  let [n, durable] = [0, true];
  const writeErrors: WriteReply['writeErrors'][number][] = [];
  for (let tries = 1; ; tries += 1) {
    const reply = await pastLockConflicts(() => write(sent.map(({ item }) => item)));
    n += reply.n;
    durable &&= reply.durable;
    const failed = reply.writeErrors.map((error) => ({
      ...error,
      again: tries < CONFLICT_TRIES && namesLockConflict(error.code, error.errmsg),
    }));
    for (const { again, ...error } of failed)
      if (!again) writeErrors.push({ ...error, index: sent[error.index]!.index });
    sent = failed.filter(({ again }) => again).map(({ index }) => sent[index]!);
    if (sent.length === 0) return { n, writeErrors, durable };
  }
}

const DUPLICATE_KEY = 11_000;

/** Whether a write met a document that already exists under a unique index. */
export function isDuplicateKey(error: unknown): boolean {
  return (error as { code?: unknown } | null)?.code === DUPLICATE_KEY;
}

/**
 * A span around one operation on a collection, named by OpenTelemetry's conventions. What is
 * written or sought stays out.
 */
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
