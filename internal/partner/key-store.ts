/** The keys in force, as MongoDB holds them: hashes only, each with its partner, status and origin. */
import type { Collection, Db, Document } from 'mongodb';
import { DAY_MS, later, type Clock } from '../platform/clock.ts';
import { bounded } from '../platform/mongo-read.ts';
import { isDuplicateKey } from '../platform/mongo.ts';
import { type IndexDefinition } from '../platform/mongo-indexes.ts';
import type { KeySource, WantedKey } from './key-secret.ts';
import type { KeyTerms } from './key-terms.ts';

export const PARTNER_KEYS = 'partner_keys';
/** Holds the `synced` marker, the terms of controllers, and removals that wait. */
const PARTNER_KEY_SYNC = 'partner_key_sync';
export const keySyncOf = <T extends Document>(db: Db): Collection<T> => db.collection<T>(PARTNER_KEY_SYNC);
const SYNCED = 'synced';
/** Counts revocations, so that ingest sees soon that there is one, without any other store. */
const REVOCATIONS = 'revocations';

/** Redis channel that tells every ingest to read the keys again. */
export const KEYS_CHANGED_CHANNEL = 'partner-ingest:keys-changed';

/** A removed key's document is kept this long, so that a late writer cannot bring it back unnoticed. */
const TOMBSTONE_MS = DAY_MS;
/** Keys in one list for an operator. */
const LISTED_MAX = 10_000;

/** One document of `partner_keys`. */
export interface PartnerKey {
  /** SHA-256 of the key in hex. */
  readonly _id: string;
  readonly partnerId: string;
  readonly status: 'active' | 'inactive' | 'removed';
  /** Absent in documents of versions that knew no terms. */
  readonly terms?: KeyTerms;
  readonly source: KeySource & { readonly owner: string };
  readonly term: number;
  readonly lastUsedAt?: Date;
  /** An operator ended the key: it does not count, whatever `status` says. Goes with the document, a day after its removal. */
  readonly revokedAt?: Date;
  readonly updatedAt: Date;
}

/** What ingest holds; of each key only what it needs is read. */
export interface LoadedKeys {
  readonly keys: readonly PartnerKey[];
  /** Removed or revoked not long ago. */
  readonly removed: readonly PartnerKey[];
  /** Of an owner that no controller has ever claimed. */
  readonly unclaimed: readonly PartnerKey[];
  /** Whether a controller has ever finished a complete reconcile. */
  readonly synced: boolean;
  /** How many revocations these keys hold. */
  readonly revocations: number;
}

interface SyncDocument {
  readonly _id: string;
  readonly term?: number;
  /** Of `REVOCATIONS`. */
  readonly count?: number;
  readonly syncedAt?: Date;
  readonly owner?: string;
}

export const partnerIndexes: readonly IndexDefinition[] = [
  { collection: PARTNER_KEYS, name: 'partner_keys_owner', key: { 'source.owner': 1 } },
];

/** Who writes: the installation, and its leader's term. A write with an older term than the stored one does nothing. */
export interface Writer {
  readonly owner: string;
  readonly term: number;
}

/** A later term of the same owner has been claimed: this writer must stop. */
export class SupersededError extends Error {
  override readonly name = 'SupersededError';
}

export class KeyStore {
  readonly #db: Db;
  readonly #clock: Clock;

  constructor(options: { readonly db: Db; readonly clock: Clock }) {
    this.#db = options.db;
    this.#clock = options.clock;
  }

  get #keys() {
    return this.#db.collection<PartnerKey>(PARTNER_KEYS);
  }

  get #sync() {
    return keySyncOf<SyncDocument>(this.#db);
  }

  /** All keys, by what they count for. */
  async load(): Promise<LoadedKeys> {
    // These are read first: keys read after them are at least as new.
    const before = await this.#sync.find({ _id: { $in: [SYNCED, REVOCATIONS] } }).toArray();
    const projection = { partnerId: 1, status: 1, terms: 1, revokedAt: 1, 'source.owner': 1 };
    const all = await this.#keys.find({}, { projection }).toArray();
    // And claims last: an owner claims before it writes. Somebody else's document may have any shape.
    const claims = await this.#sync.find({ _id: { $gte: termOf(''), $lt: termOf('\uffff') } }).toArray();
    const isClaimed = ({ source }: Partial<PartnerKey>): boolean =>
      claims.some(({ _id }) => _id === termOf(source?.owner ?? ''));
    const isRemoved = ({ status, revokedAt }: PartnerKey): boolean => status === 'removed' || revokedAt !== undefined;
    return {
      keys: all.filter((key) => isClaimed(key) && !isRemoved(key)),
      removed: all.filter((key) => isClaimed(key) && isRemoved(key)),
      unclaimed: all.filter((key) => !isClaimed(key)),
      synced: before.some(({ _id }) => _id === SYNCED),
      revocations: before.find(({ _id }) => _id === REVOCATIONS)?.count ?? 0,
    };
  }

  /** How many keys have ever been revoked. */
  async revocations(): Promise<number> {
    return (await this.#sync.findOne({ _id: REVOCATIONS }))?.count ?? 0;
  }

  /** Keys whose hash begins with `prefix`, which is hexadecimal; two at most. */
  async beginningWith(prefix: string): Promise<readonly PartnerKey[]> {
    return this.#keys
      .find({ _id: { $gte: prefix, $lt: `${prefix}g` } }, bounded)
      .limit(2)
      .toArray();
  }

  /** Ends a key for good: no controller brings it back. False when that has been done. */
  async revoke(hash: string): Promise<boolean> {
    const { matchedCount } = await this.#keys.updateOne(
      { _id: hash, revokedAt: { $exists: false } },
      { $set: { revokedAt: this.#clock.now() } },
    );
    // Also where it had been done: the count may be what was cut off then.
    await this.#sync.updateOne({ _id: REVOCATIONS }, { $inc: { count: 1 } }, { upsert: true });
    return matchedCount === 1;
  }

  /** Every document of `owner`, tombstones included. */
  async ofOwner(owner: string): Promise<readonly PartnerKey[]> {
    return this.#keys.find({ 'source.owner': owner }).toArray();
  }

  /** For an operator: all keys, or those of one partner, tombstones included. */
  async list(partnerId: string | undefined): Promise<readonly PartnerKey[]> {
    const filter = partnerId === undefined ? {} : { partnerId };
    return this.#keys.find(filter, bounded).sort({ partnerId: 1, _id: 1 }).limit(LISTED_MAX).toArray();
  }

  /** The newest term of `owner` that anybody has claimed; 0 before the first. */
  async currentTerm(owner: string): Promise<number> {
    return (await this.#sync.findOne({ _id: termOf(owner) }))?.term ?? 0;
  }

  /** Claims the writer's term: whoever has an older one can no longer write. False when it is not newer than all before. */
  async claimTerm({ owner, term }: Writer): Promise<boolean> {
    try {
      await this.#sync.updateOne({ _id: termOf(owner), term: { $lt: term } }, { $set: { term } }, { upsert: true });
    } catch (error) {
      if (isDuplicateKey(error)) return false;
      throw error;
    }
    // Keys that need no change carry the new term as well: else an earlier writer could still change those.
    await this.#keys.updateMany({ 'source.owner': owner, term: { $lt: term } }, { $set: { term } });
    return true;
  }

  /**
   * Stores wanted keys; gives those that belong to another installation and were left alone.
   * Rejects with `SupersededError`, having changed no key in force, when a later term has been claimed.
   */
  async put(keys: readonly WantedKey[], writer: Writer): Promise<readonly WantedKey[]> {
    if (keys.length === 0) return [];
    await this.#reserve(keys, writer);
    // Asked after reserving: a later leader has then either raised the term of what we reserved, or is seen here.
    await this.#mustBeCurrent(writer);
    const updatedAt = this.#clock.now();
    const result = await this.#keys.bulkWrite(
      keys.map((key) => ({
        updateOne: {
          filter: { _id: key.hash, ...ownedBy(writer) },
          update: { $set: { ...stored(key, writer), status: key.status, updatedAt } },
        },
      })),
      { ordered: false },
    );
    if (result.matchedCount === keys.length) return [];
    await this.#mustBeCurrent(writer);
    const foreign = await this.#keys
      .find(
        { _id: { $in: keys.map((key) => key.hash) }, 'source.owner': { $ne: writer.owner } },
        { projection: { _id: 1 } },
      )
      .toArray();
    if (result.matchedCount + foreign.length !== keys.length) throw new Error('keys were changed meanwhile');
    return keys.filter((key) => foreign.some(({ _id }) => _id === key.hash));
  }

  /**
   * Gives every key without a document a tombstone, and takes over tombstones of others. A key comes into force only by
   * an update of a document that carries our term: an insert has nothing stored to compare terms with, and one that was
   * on its way while this process stood still would bring back a key that has been revoked since.
   */
  async #reserve(keys: readonly WantedKey[], writer: Writer): Promise<void> {
    const present = await this.#keys
      .find({ _id: { $in: keys.map((key) => key.hash) }, ...ownedBy(writer) }, { projection: { _id: 1 } })
      .toArray();
    const owned = new Set(present.map(({ _id }) => _id));
    const missing = keys.filter((key) => !owned.has(key.hash));
    if (missing.length === 0) return;
    const updatedAt = this.#clock.now();
    try {
      await this.#keys.bulkWrite(
        missing.map((key) => ({
          updateOne: {
            filter: { _id: key.hash, 'source.owner': { $ne: writer.owner }, status: 'removed' },
            update: { $set: { ...stored(key, writer), status: 'removed', updatedAt } },
            upsert: true,
          },
        })),
        { ordered: false },
      );
    } catch (error) {
      // In force elsewhere, or of a later term: `put` finds out which.
      if (!isDuplicateKey(error)) throw error;
    }
  }

  /** Turns own keys into tombstones; gives how many. Leaves alone what a later term has written. */
  async remove(hashes: readonly string[], writer: Writer): Promise<number> {
    if (hashes.length === 0) return 0;
    const result = await this.#keys.updateMany(
      { _id: { $in: [...hashes] }, ...ownedBy(writer) },
      { $set: { status: 'removed', term: writer.term, updatedAt: this.#clock.now() } },
    );
    return result.matchedCount;
  }

  /**
   * Hands all documents of a former owner to the one that synced last, in force as they are: its next round leaves alone
   * what its Secrets ask for and removes the rest. Undefined when no controller has ever synced, or `former` is the one.
   */
  async adopt(former: string): Promise<{ readonly owner: string; readonly adopted: number } | undefined> {
    const owner = (await this.#sync.findOne({ _id: SYNCED }))?.owner;
    if (owner === undefined || owner === former) return undefined;
    return { owner, adopted: await this.takeOver(former, { owner, term: await this.currentTerm(owner) }) };
  }

  /** Makes all documents of `former` the writer's, active as they are; gives how many. */
  async takeOver(former: string, { owner, term }: Writer): Promise<number> {
    const result = await this.#keys.updateMany(
      { 'source.owner': former },
      { $set: { 'source.owner': owner, term, updatedAt: this.#clock.now() } },
    );
    return result.matchedCount;
  }

  /** Deletes own tombstones that are old enough. */
  async purge(writer: Writer): Promise<void> {
    await this.#keys.deleteMany({
      ...ownedBy(writer),
      status: 'removed',
      updatedAt: { $lt: later(this.#clock.now(), -TOMBSTONE_MS) },
    });
  }

  /** Tells ingest that the keys are complete. */
  async markSynced(writer: Writer): Promise<void> {
    await this.#mustBeCurrent(writer);
    await this.#sync.updateOne(
      { _id: SYNCED },
      { $set: { syncedAt: this.#clock.now(), owner: writer.owner, term: writer.term } },
      { upsert: true },
    );
  }

  async #mustBeCurrent(writer: Writer): Promise<void> {
    if ((await this.currentTerm(writer.owner)) !== writer.term) throw new SupersededError();
  }

  /** Notes when keys were used; never moves a date back. */
  async touch(hashes: readonly string[], usedAt: Date): Promise<void> {
    await this.#keys.updateMany({ _id: { $in: [...hashes] } }, { $max: { lastUsedAt: usedAt } });
  }
}

const termOf = (owner: string): string => `term:${owner}`;

/** What a writer may change: its own documents, unless a later term has written them. */
function ownedBy({ owner, term }: Writer) {
  return { 'source.owner': owner, term: { $lte: term } };
}

function stored(key: WantedKey, { owner, term }: Writer): Pick<PartnerKey, 'partnerId' | 'terms' | 'source' | 'term'> {
  return { partnerId: key.partnerId, terms: key.terms, source: { owner, ...key.source }, term };
}
