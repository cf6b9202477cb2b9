/**
 * All partner keys, as hashes, in one document, which also holds the lease of the controller that
 * writes them.
 */
import { randomInt } from 'node:crypto';
import type { Collection, Db, Document } from 'mongodb';
import { Turns } from '../fair/turns.ts';
import type { Clock } from '../platform/process/clock.ts';
import { withDeadline } from '../platform/process/deadline.ts';
import { bounded } from '../platform/stores/mongo-read.ts';
import { unlessDuplicate } from '../platform/stores/mongo.ts';
import { refuseNewer } from '../platform/process/fault.ts';
import type { KeySource, WantedKey } from './key-secret.ts';

/** Two leaps from one version are equal once in a million. */
const VERSION_LEAP = 1_000_000;

export const PARTNER_KEYS = 'partner_keys';
const KEYS = 'keys';
const KEYS_SCHEMA = 1;

/** Measured by the database's clock only. */
const LEASE_MS = 15_000;
const CALL_TIMEOUT_MS = 3_000;
/** Reading 12 MB takes a second or two; the driver has no time-out for a server that hangs. */
const WHOLE_TIMEOUT_MS = 10_000;
/** Enough to say whose keys they are. */
const SOURCES_MOST = 1_000;

export interface StoredKey extends WantedKey {
  readonly updatedAt: Date;
}

export interface OwnerAt {
  /** An `ownerName`. */
  readonly owner: string;
  readonly at: Date;
}

/** Keys that no Secret holds any more; `at` is when the last one ended. */
export interface EndedKeys extends OwnerAt {
  /** How many keys the owner had; absent in a row of an earlier version. */
  readonly keys?: number;
}

export interface KeyDocument {
  readonly _id: typeof KEYS;
  /** Raised when older versions would misread the document. */
  readonly schema?: number;
  /** Differs between any two contents, also after a restore. */
  readonly version: number;
  /** May write until `expiresAt`. */
  readonly holder: string;
  readonly expiresAt: Date;
  /**
   * When the keys were last written after a complete look at all Secrets; absent before the first.
   */
  readonly syncedAt?: Date;
  readonly keys: readonly StoredKey[];
  /** Owners whose keys ended, or who came, in the last minutes; a new leader counts them too. */
  readonly ended?: readonly EndedKeys[];
  readonly arrived?: readonly OwnerAt[];
  /** Partners whose annotations are void, also while their `Partner` is gone. */
  readonly followers?: readonly string[];
}

/** The collection's documents have several shapes, each by its `_id`. */
export const partnerKeys = <Shape extends Document>(db: Db): Collection<Shape> =>
  db.collection<Shape>(PARTNER_KEYS);

/** Another process writes the keys now, or they were restored: this writer must stop. */
export class SupersededError extends Error {
  override readonly name = 'SupersededError';
}

const FREE = new Date(0);
const inLeases = (count: number) => ({ $add: ['$$NOW', count * LEASE_MS] });
/** An expiry more than two leases ahead was set by a wrong clock. */
const isFree = { $or: [{ $lt: ['$expiresAt', '$$NOW'] }, { $gt: ['$expiresAt', inLeases(2)] }] };

export class KeyDocuments {
  readonly #documents: Collection<KeyDocument>;
  readonly #clock: Clock;

  constructor({ db, clock }: { readonly db: Db; readonly clock: Clock }) {
    this.#documents = partnerKeys<KeyDocument>(db);
    this.#clock = clock;
  }

  /** False while another process holds the lease. Rejects with `NewerVersionError`. */
  async acquire(holder: string): Promise<boolean> {
    const options = { projection: { schema: 1 }, maxTimeMS: CALL_TIMEOUT_MS };
    const found = await call(this.#documents.findOne({ _id: KEYS }, options));
    if (found !== null) refuseNewer('the partner keys', found, KEYS_SCHEMA);
    else {
      const version = this.#clock.now().getTime();
      const made = { _id: KEYS, version, holder: '', expiresAt: FREE, keys: [] } as const;
      await unlessDuplicate(call(this.#documents.insertOne(made)));
    }
    const version = { $add: ['$version', 1] };
    const acquired = this.#documents.updateOne(
      { _id: KEYS, $or: [{ holder }, { $expr: isFree }] },
      [{ $set: { holder: { $literal: holder }, expiresAt: inLeases(1), version } }],
    );
    return (await call(acquired)).matchedCount === 1;
  }

  async renew(holder: string): Promise<boolean> {
    const renewal = this.#documents.updateOne({ _id: KEYS, holder }, [
      { $set: { expiresAt: inLeases(1) } },
    ]);
    return (await call(renewal)).matchedCount === 1;
  }

  async giveBack(holder: string): Promise<void> {
    await call(this.#documents.updateOne({ _id: KEYS, holder }, { $set: { expiresAt: FREE } }));
  }

  /** Where stored keys come from, and who holds the lease at `now`. */
  async sources(
    now: Date,
  ): Promise<{ readonly sources: readonly KeySource[]; readonly leader: string | undefined }> {
    const shown = { holder: 1, expiresAt: 1, sources: { $slice: ['$keys.source', SOURCES_MOST] } };
    const [found] = await call(
      this.#documents
        .aggregate<Pick<KeyDocument, 'holder' | 'expiresAt'> & { sources: KeySource[] }>(
          [{ $match: { _id: KEYS } }, { $project: shown }],
          bounded,
        )
        .toArray(),
    );
    const holds = found !== undefined && found.holder !== '' && found.expiresAt > now;
    return { sources: found?.sources ?? [], leader: holds ? found.holder : undefined };
  }

  /** Undefined if there is no document. */
  async version(): Promise<number | undefined> {
    const options = { projection: { version: 1 }, maxTimeMS: CALL_TIMEOUT_MS };
    return (await call(this.#documents.findOne({ _id: KEYS }, options)))?.version;
  }

  async read(): Promise<KeyDocument | undefined> {
    const reading = this.#documents.findOne({ _id: KEYS }, bounded);
    const document = await withDeadline(reading, WHOLE_TIMEOUT_MS, 'reading the keys');
    if (document !== null) refuseNewer('the partner keys', document, KEYS_SCHEMA);
    return document ?? undefined;
  }

  /**
   * Replaces all keys if the document still has this version; returns the next one. Rejects with
   * `SupersededError` if not: a later leader has begun, or the document was restored.
   */
  async replace(
    version: number,
    keys: readonly StoredKey[],
    {
      synced,
      ended,
      arrived,
      followers = [],
    }: { readonly synced: boolean } & Required<Pick<KeyDocument, 'ended' | 'arrived'>> &
      Pick<KeyDocument, 'followers'>,
  ): Promise<number> {
    const now = this.#clock.now();
    // After a restore, ingest may already know `version + 1`, and this clock may be behind.
    const next = Math.max(version + 1 + randomInt(VERSION_LEAP), now.getTime());
    const replaced = this.#documents.updateOne(
      { _id: KEYS, version },
      {
        $set: {
          schema: KEYS_SCHEMA,
          version: next,
          keys,
          ended,
          arrived,
          followers,
          ...(synced ? { syncedAt: now } : {}),
        },
      },
    );
    const { matchedCount } = await withDeadline(replaced, WHOLE_TIMEOUT_MS, 'writing the keys');
    if (matchedCount === 0) throw new SupersededError();
    return next;
  }
}

const call = <T>(promise: Promise<T>): Promise<T> =>
  withDeadline(promise, CALL_TIMEOUT_MS, 'a call about the keys');

/** MongoDB takes documents of 16 MiB; a key without networks has 300 to 500 bytes. */
export const KEYS_MAX = 10_000;
const KEY_BYTES = 1_200;

/** Bytes for all keys; each counts at least `KEY_BYTES`. */
const ROOM = KEYS_MAX * KEY_BYTES;

interface KeyRoom {
  readonly fitting: readonly StoredKey[];
  readonly over: readonly StoredKey[];
  /** Share of the room that all wanted keys need; 1 is full. */
  readonly asked: number;
}

/** If the keys need more, the partner with most bytes loses its newest ones. */
export function shareRoom(keys: readonly StoredKey[]): KeyRoom {
  const turns = new Turns<StoredKey>({ sizeOf: bytesOf });
  for (const key of keys) turns.put(key.partnerId, key);
  const asked = turns.size / ROOM;
  const over = new Set<StoredKey>();
  while (turns.size > ROOM) over.add(turns.giveWay('size')!);
  return { fitting: keys.filter((key) => !over.has(key)), over: [...over], asked };
}

/** An upper bound: BSON needs 7 bytes more than JSON for an array element, else fewer. */
const bytesOf = (key: StoredKey): number =>
  Math.max(KEY_BYTES, JSON.stringify(key).length + 7 * (key.terms.cidrs?.length ?? 0));
