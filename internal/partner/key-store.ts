/**
 * The partners' keys, as MongoDB holds them: hashes only, each with its partner, status and origin.
 */
import type { Db, Document } from 'mongodb';
import { DAY_MS, later, type Clock } from '../platform/clock.ts';
import { defined } from '../platform/defined.ts';
import { bounded } from '../platform/mongo-read.ts';
import { isDuplicateKey } from '../platform/mongo.ts';
import type { KeySource, WantedKey } from './key-secret.ts';
import { KeySync } from './key-sync.ts';
import type { KeyTerms } from './key-terms.ts';

export const PARTNER_KEYS = 'partner_keys';

/**
 * Removals are deferred so long: an operator can see the alert and act, and a wanted removal is not
 * forgotten.
 */
export const DEFER_MS = 600_000;
/** How long a removed key is remembered: its use is told, and its document still compares terms. */
const TOMBSTONE_MS = DAY_MS;
/** Keys in one list for an operator. */
const LISTED_MAX = 10_000;
/** Keys in one answer of the server, so that reading many of them lets requests pass in between. */
const LOAD_BATCH = 1_000;

/** Whatever else stands in the collection is no key. */
const isKey = { term: { $gte: 0 }, 'source.uid': { $type: 'string' } } as const;

/** One document of `partner_keys`. */
export interface PartnerKey {
  /** SHA-256 of the key in hex. */
  readonly _id: string;
  readonly partnerId: string;
  readonly status: 'active' | 'inactive' | 'removed';
  readonly terms?: KeyTerms;
  readonly source: KeySource;
  /** Of the lease under which it was written last. */
  readonly term: number;
  readonly lastUsedAt?: Date;
  /** When it last began to count. */
  readonly activeAt?: Date;
  /**
   * When a change of its Secret ended it. Absent while it counts, and where the end had been
   * deferred.
   */
  readonly endedAt?: Date;
  /** Since when its Secret asks for its end, which waits because most keys would end. */
  readonly deferredAt?: Date;
  /** An operator confirmed that end. */
  readonly confirmedAt?: Date;
  /**
   * An operator ended the key: it does not count, whatever `status` says. Such a document is kept.
   */
  readonly revokedAt?: Date;
  readonly updatedAt: Date;
}

/** What ingest holds; of each key only what it needs is read. */
export interface LoadedKeys {
  readonly keys: readonly PartnerKey[];
  /** Revoked, or removed not long ago. */
  readonly removed: readonly PartnerKey[];
  /** They are at least as new as this version. */
  readonly version: string;
}

/** What a round does to one key. */
export type KeyChange =
  | {
      readonly kind: 'put';
      readonly key: WantedKey;
      /** Undefined where it does not change. */
      readonly activeAt?: Date | undefined;
      readonly endedAt: Date | undefined;
    }
  | { readonly kind: 'remove'; readonly hash: string; readonly endedAt: Date | undefined }
  | { readonly kind: 'defer'; readonly hash: string };

const hashOf = (change: KeyChange): string =>
  change.kind === 'put' ? change.key.hash : change.hash;

export class KeyStore {
  readonly sync: KeySync;
  readonly #db: Db;
  readonly #clock: Clock;

  constructor(options: { readonly db: Db; readonly clock: Clock }) {
    this.sync = new KeySync(options.db);
    this.#db = options.db;
    this.#clock = options.clock;
  }

  get #keys() {
    return this.#db.collection<PartnerKey>(PARTNER_KEYS);
  }

  /**
   * All keys; undefined before a controller has compared them all. The version is read first and
   * counted last, and the session is causally consistent: the keys are never older than the
   * version, on whatever server they are read.
   */
  load(): Promise<LoadedKeys | undefined> {
    return this.#db.client.withSession({ causalConsistency: true }, async (session) => {
      const version = await this.sync.version(session);
      if (version === undefined) return undefined;
      const projection = { partnerId: 1, status: 1, terms: 1, revokedAt: 1 };
      const all = await this.#keys
        .find(isKey, { projection, session, batchSize: LOAD_BATCH, ...bounded })
        .toArray();
      const isRemoved = ({ status, revokedAt }: PartnerKey): boolean =>
        status === 'removed' || revokedAt !== undefined;
      return {
        keys: all.filter((key) => !isRemoved(key)),
        removed: all.filter(isRemoved),
        version,
      };
    });
  }

  /** Every document, tombstones included. */
  async all(): Promise<readonly PartnerKey[]> {
    return this.#keys.find(isKey, { batchSize: LOAD_BATCH }).toArray();
  }

  /** For an operator: all keys, or those of one partner, tombstones included. */
  async list(partnerId: string | undefined): Promise<readonly PartnerKey[]> {
    const filter = defined({ partnerId });
    return this.#keys
      .find(filter, bounded)
      .sort({ partnerId: 1, _id: 1 })
      .limit(LISTED_MAX)
      .toArray();
  }

  /** Keys whose hash begins with `prefix`, which is hexadecimal; two at most. */
  async beginningWith(prefix: string): Promise<readonly PartnerKey[]> {
    return this.#keys
      .find({ _id: { $gte: prefix, $lt: `${prefix}g` } }, bounded)
      .limit(2)
      .toArray();
  }

  /** Ends a key for good; false when that has been done already. */
  async revoke(hash: string): Promise<boolean> {
    const { matchedCount } = await this.#keys.updateOne(
      { _id: hash, revokedAt: { $exists: false } },
      { $set: { revokedAt: this.#clock.now() } },
    );
    await this.sync.count(undefined, { synced: false });
    return matchedCount === 1;
  }

  /** Keys whose end waits for an operator or for time to pass. */
  async deferred(): Promise<readonly PartnerKey[]> {
    return this.#keys
      .find({ deferredAt: { $exists: true }, confirmedAt: { $exists: false } }, bounded)
      .toArray();
  }

  /** Lets these end now; gives how many still wait. */
  async confirm(hashes: readonly string[]): Promise<number> {
    const { matchedCount } = await this.#keys.updateMany(
      { _id: { $in: [...hashes] }, deferredAt: { $exists: true } },
      { $set: { confirmedAt: this.#clock.now() } },
    );
    return matchedCount;
  }

  /** Notes when keys were used; never moves a date back. */
  async touch(hashes: readonly string[], usedAt: Date): Promise<void> {
    await this.#keys.updateMany({ _id: { $in: [...hashes] } }, { $max: { lastUsedAt: usedAt } });
  }

  /** Takes the lease for `holder`; see `KeySync.take`. */
  takeLease(holder: string): Promise<number | undefined> {
    return this.sync.take(holder, async () => {
      const newest = await this.#keys.findOne(
        {},
        { sort: { term: -1 }, projection: { term: 1 }, ...bounded },
      );
      return newest?.term ?? 0;
    });
  }

  /**
   * Begins a term: no earlier writer changes any key from here on, also those that need no change
   * now.
   */
  async raise(term: number): Promise<void> {
    await this.#keys.updateMany({ term: { $lt: term } }, { $set: { term } });
  }

  /**
   * Makes the changes. Rejects with `SupersededError` when a later term has begun; what has been
   * written by then, that term sees in its first round, and nothing is written after it has begun.
   */
  async write(changes: readonly KeyChange[], term: number): Promise<void> {
    if (changes.length === 0) return;
    await this.#reserve(changes, term);
    // Asked after reserving: a later leader has then either raised the term of what we reserved, or
    // is seen here.
    await this.sync.mustBeCurrent(term);
    const now = this.#clock.now();
    const { matchedCount } = await this.#keys.bulkWrite(
      changes.map((change) => ({
        updateOne: {
          filter: { _id: hashOf(change), ...upTo(term) },
          update: updateFor(change, term, now),
        },
      })),
      { ordered: false },
    );
    if (matchedCount === changes.length) return;
    await this.sync.mustBeCurrent(term);
    throw new Error('keys were changed meanwhile');
  }

  /**
   * Gives every key without a document a tombstone. A key comes into force only by an update of a
   * document that carries our term: an insert has nothing stored to compare terms with, and one
   * that was on its way while this process stood still would bring back a key that has ended since.
   */
  async #reserve(changes: readonly KeyChange[], term: number): Promise<void> {
    const wanted = changes.flatMap((change) => (change.kind === 'put' ? [change.key] : []));
    const ids = wanted.map(({ hash }) => hash);
    const present = await this.#keys
      .find({ _id: { $in: ids } }, { projection: { _id: 1 } })
      .toArray();
    const known = new Set(present.map(({ _id }) => _id));
    const missing = wanted.filter(({ hash }) => !known.has(hash));
    if (missing.length === 0) return;
    const updatedAt = this.#clock.now();
    const tombstones = missing.map((key): PartnerKey => ({
      _id: key.hash,
      ...fieldsOf(key, term),
      status: 'removed',
      updatedAt,
    }));
    await this.#keys.insertMany(tombstones, { ordered: false }).catch((error: unknown) => {
      // Another writer was faster; the update compares terms.
      if (!isDuplicateKey(error)) throw error;
    });
  }

  /** Deletes tombstones that are old enough; what was revoked stays. */
  async purge(term: number): Promise<void> {
    await this.#keys.deleteMany({
      status: 'removed',
      revokedAt: { $exists: false },
      ...upTo(term),
      updatedAt: { $lt: later(this.#clock.now(), -TOMBSTONE_MS) },
    });
  }
}

/** What no later term has written. */
const upTo = (term: number) => ({ term: { $not: { $gt: term } } });

function fieldsOf({ partnerId, terms, source }: WantedKey, term: number) {
  return { partnerId, terms, source, term };
}

function updateFor(change: KeyChange, term: number, now: Date): Document {
  if (change.kind === 'defer') return { $set: { deferredAt: now, term } };
  const ended = defined({ endedAt: change.endedAt });
  const $unset = {
    deferredAt: '',
    confirmedAt: '',
    ...(change.endedAt === undefined ? { endedAt: '' } : {}),
  };
  if (change.kind === 'remove')
    return { $set: { status: 'removed', term, updatedAt: now, ...ended }, $unset };
  const began = defined({ activeAt: change.activeAt });
  const fields = { ...fieldsOf(change.key, term), status: change.key.status, updatedAt: now };
  return { $set: { ...fields, ...began, ...ended }, $unset };
}
