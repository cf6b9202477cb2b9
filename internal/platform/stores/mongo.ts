/** MongoDB clients whose writes are durable, and bulk writes that end in time. */
import { SpanKind, type Attributes } from '@opentelemetry/api';
import {
  MongoClient,
  MongoServerError,
  MongoWriteConcernError,
  type Collection,
  type Document,
  type MongoClientOptions,
} from 'mongodb';
import { askWhoAnswers, Contact, contactFault, type Place } from '../process/contact-failure.ts';
import { isLoopback } from '../http/networks.ts';
import { DeadlineError, withDeadline } from '../process/deadline.ts';
import { defined } from '../process/defined.ts';
import { NewerVersionError, type Fault, type Probe } from '../process/fault.ts';
import type { Logger } from '../process/log.ts';
import { isDeadlock } from '../process/server-words.ts';
import type { NamedSpan } from '../process/tracing.ts';
import './inside-mongodb.ts';
import { attemptAt, watchMembers } from './mongo-members.ts';

/** The driver would wait 30 s. */
const SERVER_SELECTION_TIMEOUT_MS = 2_000;
const CONNECT_TIMEOUT_MS = 2_000;
/** Without an answer by then, the connection is destroyed. */
const SOCKET_TIMEOUT_MS = 10_000;
const MAX_POOL_SIZE = 32;
/** Without an answer by then, the write counts as lost and its caller tries again. */
const WRITE_DEADLINE_MS = 10_000;
/**
 * The wait for the majority ends first, so that a stall ends with an answer and keeps the
 * connection.
 */
const MAJORITY_SHARE = 0.9;

/** Removed from the URI, because the driver would prefer them to ours, or refuse both together. */
const OUR_OPTIONS =
  /^(?:w|j|journal|fsync|wtimeout|wtimeoutms|readpreference|readpreferencetags|maxstalenessseconds)$/i;

/**
 * Writes are majority-committed and journaled, whatever the URI says. Reads use the primary. The
 * client connects and reconnects by itself.
 */
export function createMongo(
  uri: string,
  appName: string,
  options: MongoClientOptions = {},
): MongoClient {
  const socketTimeoutMS = options.socketTimeoutMS ?? SOCKET_TIMEOUT_MS;
  const client = new MongoClient(withoutOurOptions(uri), {
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
  watchMembers(client);
  return client;
}

/** Throws if the driver cannot read the URI; its message may quote the URI. */
export function mongoLink(uri: string): {
  /** Whether others could read or change the traffic. */
  readonly exposed: boolean;
  readonly unverified: boolean;
} {
  const { options } = createMongo(uri, 'check');
  const { tls, hosts, srvHost, rejectUnauthorized, checkServerIdentity } = options;
  const isLocal =
    srvHost === undefined &&
    hosts.every(({ host = '', socketPath }) => socketPath !== undefined || isLoopback(host));
  return {
    exposed: !tls && !isLocal,
    // The driver derives both from tlsInsecure and the tlsAllowInvalid… options.
    unverified: rejectUnauthorized === false || checkServerIdentity !== undefined,
  };
}

/** The driver asks a silent DNS for a minute. Call it again after a failure. */
export async function connectMongo(client: MongoClient, withinMs: number): Promise<void> {
  const { srvHost, hosts } = client.options;
  try {
    await withDeadline(client.connect(), withinMs, 'connecting');
  } catch (error) {
    const isSilent = error instanceof DeadlineError && srvHost !== undefined && hosts.length === 0;
    await askWhoAnswers(error, attemptAt(client, error).at);
    throw isSilent ? Object.assign(error, { code: 'ETIMEOUT', syscall: 'querySrv' }) : error;
  }
}

/** For operators; contains no user or password. */
export function mongoFault(client: MongoClient | undefined, error: unknown): Fault {
  if (error instanceof NewerVersionError) return { code: 'newer_version', words: error.message };
  return contactFault(placeOf(client), error, client && attemptAt(client, error));
}

/** A write may fail while reads succeed, so only a later write ends the warning, or this time. */
const WRITE_FAILED_MS = 300_000;
/** One item of many may fail. */
const QUIET_MS = 5_000;

/** Tells the log and `/readyz` of writes that fail. */
export class WriteContact {
  readonly #client: MongoClient;
  readonly #contact: Contact;
  #failedAtMs = -Infinity;
  #hasWritten = true;

  constructor(client: MongoClient, log: Logger) {
    this.#client = client;
    this.#contact = new Contact(placeOf(client), log);
    // The first contact asks what answers there.
    this.#contact.ok();
  }

  failed(error: unknown): void {
    this.#failedAtMs = performance.now();
    this.#hasWritten = false;
    this.#contact.failed(error, attemptAt(this.#client, error));
  }

  /** A write has succeeded; returns whether that ends the failure. */
  ok(): boolean {
    this.#hasWritten = true;
    return this.#hasEnded();
  }

  readonly warnings: Probe = () => (this.#hasEnded() ? [] : this.#contact.warnings());

  #hasEnded(): boolean {
    const quietMs = this.#hasWritten ? QUIET_MS : WRITE_FAILED_MS;
    if (performance.now() - this.#failedAtMs < quietMs) return false;
    this.#contact.ok();
    return true;
  }
}

function placeOf(client: MongoClient | undefined): Place {
  const { hosts, srvHost, tls, credentials } = client?.options ?? {};
  const source = credentials?.source;
  return {
    name: 'MongoDB',
    at: hosts?.join(', ') || srvHost,
    setting: 'MONGODB_URI',
    ...(source === undefined
      ? {}
      : { login: `user and password in MONGODB_URI, and its authSource, which is ${source}` }),
    certificate: 'tlsCertificateKeyFile of MONGODB_URI',
    speaks: 'MongoDB',
    ...defined({ tls }),
  };
}

function withoutOurOptions(uri: string): string {
  const [base = '', options = ''] = uri.split('?');
  const kept = options.split('&').filter((option) => {
    const [[name = ''] = []] = new URLSearchParams(option);
    return !OUR_OPTIONS.test(name);
  });
  return kept.length === 0 ? base : `${base}?${kept.join('&')}`;
}

/** Aborts what the deadline left behind. One instance, because each new error costs a stack. */
const WRITE_TIMED_OUT = new Error('the write took too long');

export interface UpdateItem {
  readonly q: Document;
  readonly u: Document;
  readonly upsert?: boolean;
  readonly multi?: boolean;
}

export interface WriteReply {
  /** Documents inserted, or matched and upserted. */
  readonly n: number;
  readonly writeErrors: readonly {
    readonly index: number;
    readonly code: number;
    readonly errmsg?: string;
  }[];
  /** Why no majority acknowledged the items, which were applied. */
  readonly concern?: Error;
}

/**
 * Inserts or updates documents in one command of at most 16 MB. Resolves only with the server's
 * answer. Without one within `deadlineMs` it rejects and destroys the connection, so that no other
 * command gets the late answer.
 *
 * The driver's `insertMany` and `bulkWrite` (7.8) do neither: a large message to a hung server has
 * no time-out, and a lost connection becomes a bulk write error that looks like success.
 */
export async function writeTogether<T extends Document>(
  { db, collectionName }: Collection<T>,
  items: { readonly documents: readonly T[] } | { readonly updates: readonly UpdateItem[] },
  deadlineMs = WRITE_DEADLINE_MS,
  majorityMs = deadlineMs * MAJORITY_SHARE,
): Promise<WriteReply> {
  const name = 'documents' in items ? { insert: collectionName } : { update: collectionName };
  const over = new AbortController();
  const writeConcern = { w: 'majority', j: true, wtimeout: Math.round(majorityMs) };
  const command = { ...name, ...items, ordered: false, writeConcern };
  try {
    const asked = db.command(command, { signal: over.signal, ignoreUndefined: true });
    return writeReply(await withDeadline(asked, deadlineMs, 'write'));
  } catch (error) {
    over.abort(WRITE_TIMED_OUT);
    if (!(error instanceof MongoWriteConcernError)) throw error;
    return writeReply(error.result, error);
  }
}

function writeReply({ n, writeErrors = [] }: Document, concern?: Error): WriteReply {
  return { n, writeErrors, ...defined({ concern }) };
}

/** Updates the documents in `ids` that match `q`; repeating it must change nothing. */
export interface UpdateOfSome {
  readonly ids: readonly string[];
  readonly q: Document;
  readonly u: Document;
}

interface UpdatesDone<Update> {
  /** How many documents matched. */
  readonly n: number;
  /** Every document matched, for certain. */
  readonly isWhole: boolean;
  readonly failed: readonly {
    readonly of: Update;
    readonly id: string;
    readonly error: MongoServerError;
  }[];
}

/** Like `updateEach`, but rejects if one failed, with its error. */
export async function updateInOrder<T extends Document>(
  collection: Collection<T>,
  updates: readonly UpdateOfSome[],
): Promise<UpdatesDone<UpdateOfSome>> {
  const done = await updateEach(collection, updates);
  for (const { error } of done.failed) throw error;
  return done;
}

/**
 * One command for all; the ids of an update are all different. Of an update that fails, each
 * document is sent again alone, so that one that fails fails alone. Rejects with `NotDurableError`.
 *
 * All writes of several documents go in the order of ids, which prevents most deadlocks.
 */
export async function updateEach<T extends Document, Update extends UpdateOfSome>(
  collection: Collection<T>,
  updates: readonly Update[],
): Promise<UpdatesDone<Update>> {
  const sorted = updates.map((of) => ({ of, ids: of.ids.toSorted() }));
  const inOrder = sorted.toSorted((one, other) => (one.ids[0]! < other.ids[0]! ? -1 : 1));
  const { n, sends, failed } = await sendPastLockConflicts(
    inOrder,
    async (some) => {
      const items = some.map(({ of: { q, u }, ids }) => updateOf(ids, q, u));
      return requireDurable(await writeTogether(collection, { updates: items }));
    },
    ({ of, ids }) => ids.map((id) => ({ of, ids: [id] })),
  );
  const asked = updates.reduce((sum, { ids }) => sum + ids.length, 0);
  return {
    n,
    // What is sent again may be counted again.
    isWhole: sends === 1 && failed.size === 0 && n === asked,
    failed: [...failed].map(([{ of, ids }, error]) => ({ of, id: ids[0]!, error })),
  };
}

function updateOf(ids: readonly string[], q: Document, u: Document): UpdateItem {
  if (ids.length === 1) return { q: { _id: ids[0], ...q }, u };
  return { q: { _id: { $in: ids }, ...q }, u, multi: true };
}

/** Rejects with `NotDurableError`, although the writes may stand. */
export function requireDurable(reply: WriteReply): WriteReply {
  const { concern: cause } = reply;
  if (cause !== undefined)
    throw new NotDurableError('no majority acknowledged the write in time', { cause });
  return reply;
}

/** Writes were applied without acknowledgement by a majority in time; they may be rolled back. */
export class NotDurableError extends Error {
  override readonly name = 'NotDurableError';
}

/** An update that matches nothing still waits for the majority. Rejects with what prevents it. */
export async function takesWrites<T extends Document>(collection: Collection<T>): Promise<true> {
  const nothing = { q: { _id: '' }, u: { $set: { probed: true } } };
  const reply = await writeTogether(collection, { updates: [nothing] });
  const failure = failureIn(reply);
  if (failure !== undefined) throw failure;
  return true;
}

/** The error of the first item that failed, or of the majority. */
export function failureIn({ writeErrors: [first], concern }: WriteReply): Error | undefined {
  return first === undefined ? concern : errorOf(first);
}

function errorOf({ code, errmsg = 'a write failed' }: WriteReply['writeErrors'][number]) {
  return new MongoServerError({ message: errmsg, code });
}

const WRITE_CONFLICT = 112;
const CONFLICT_TRIES = 5;

/**
 * Writes to several keys can deadlock; the server ends one, and a retry succeeds. FerretDB says so
 * in words, MongoDB by WriteConflict.
 */
export function isLockConflict(error: { readonly code?: unknown; readonly errmsg?: unknown }) {
  return error.code === WRITE_CONFLICT || isDeadlock(error.errmsg);
}

/** Tries up to five times, so `write` must be idempotent. */
export async function pastLockConflicts<T>(write: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await write();
    } catch (error) {
      if (tries === CONFLICT_TRIES || !(error instanceof MongoServerError)) throw error;
      if (!isLockConflict({ code: error.code, errmsg: error.message })) throw error;
    }
  }
}

/**
 * Sends items again that lost a deadlock; `apart` gives the parts in which one that fails is sent
 * again. `n` is of all that did not fail.
 */
export async function sendPastLockConflicts<Item>(
  items: readonly Item[],
  send: (items: readonly Item[]) => Promise<WriteReply>,
  apart: (item: Item) => readonly Item[] = (item) => [item],
): Promise<{
  readonly n: number;
  readonly sends: number;
  readonly failed: ReadonlyMap<Item, MongoServerError>;
}> {
  const failed = new Map<Item, MongoServerError>();
  let [n, sends, left] = [0, 0, items];
  while (left.length > 0) {
    const sent = left;
    const reply = await pastLockConflicts(() => send(sent));
    n += reply.n;
    sends += 1;
    const again: Item[] = [];
    for (const writeError of reply.writeErrors) {
      const parts = apart(sent[writeError.index]!);
      if (parts.length > 1 || (isLockConflict(writeError) && sends < CONFLICT_TRIES))
        again.push(...parts);
      else failed.set(parts[0]!, errorOf(writeError));
    }
    left = again;
  }
  return { n, sends, failed };
}

const DUPLICATE_KEY = 11_000;

export function isDuplicateKey(error: unknown): boolean {
  return (error as { code?: unknown } | null)?.code === DUPLICATE_KEY;
}

/** False if the write found its unique value taken. */
export async function unlessDuplicate(writing: Promise<unknown>): Promise<boolean> {
  try {
    await writing;
    return true;
  } catch (error) {
    if (isDuplicateKey(error)) return false;
    throw error;
  }
}

/** Contains no values of the query or the document. */
export function databaseSpan(
  operation: string,
  collection: { readonly dbName: string; readonly collectionName: string },
  attributes: Attributes = {},
): NamedSpan {
  return {
    name: `${operation} ${collection.collectionName}`,
    kind: SpanKind.CLIENT,
    attributes: {
      'db.system.name': 'mongodb',
      'db.namespace': collection.dbName,
      'db.collection.name': collection.collectionName,
      'db.operation.name': operation,
      ...attributes,
    },
  };
}
