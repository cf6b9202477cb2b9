/** The keys in force, as MongoDB holds them: hashes only, each with its partner, status and origin. */
import type { Db } from 'mongodb';
import { later, type Clock } from '../platform/clock.ts';
import { isDuplicateKey, type IndexDefinition } from '../platform/mongo.ts';
import type { KeySource, WantedKey } from './key-secret.ts';

export const PARTNER_KEYS = 'partner_keys';
/** Holds the `synced` marker and the terms of controllers. */
const PARTNER_KEY_SYNC = 'partner_key_sync';
const SYNCED = 'synced';

/** Redis channel that tells every ingest to read the keys again. */
export const KEYS_CHANGED_CHANNEL = 'partner-ingest:keys-changed';

/** A removed key's document is kept this long, so that a late writer cannot bring it back unnoticed. */
const TOMBSTONE_MS = 86_400_000;

/** One document of `partner_keys`. */
export interface PartnerKey {
  /** SHA-256 of the key in hex. */
  readonly _id: string;
  readonly partnerId: string;
  readonly status: 'active' | 'inactive' | 'removed';
  readonly source: KeySource & { readonly owner: string };
  readonly term: number;
  readonly lastUsedAt?: Date;
  readonly updatedAt: Date;
}

interface SyncDocument {
  readonly _id: string;
  readonly term?: number;
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
    return this.#db.collection<SyncDocument>(PARTNER_KEY_SYNC);
  }

  /** All keys but tombstones, and whether a controller has ever finished a complete reconcile. */
  async load(): Promise<{ readonly keys: readonly PartnerKey[]; readonly synced: boolean }> {
    // The marker is read first: keys read after it are at least as new.
    const marker = await this.#sync.findOne({ _id: SYNCED });
    const keys = await this.#keys
      .find({ status: { $ne: 'removed' } }, { projection: { partnerId: 1, status: 1 } })
      .toArray();
    return { keys, synced: marker !== null };
  }

  /** Every document of `owner`, tombstones included. */
  async ofOwner(owner: string): Promise<readonly PartnerKey[]> {
    return this.#keys.find({ 'source.owner': owner }).toArray();
  }

  /** Takes the next term of `owner`: whoever took one before can no longer write. */
  async nextTerm(owner: string): Promise<number> {
    const document = await this.#sync.findOneAndUpdate(
      { _id: `term:${owner}` },
      { $inc: { term: 1 } },
      { upsert: true, returnDocument: 'after' },
    );
    const term = document?.term ?? 1;
    // Keys that need no change carry the new term as well: else an earlier writer could still change those.
    await this.#keys.updateMany({ 'source.owner': owner, term: { $lt: term } }, { $set: { term } });
    return term;
  }

  /**
   * Stores a wanted key. False when it is not ours to write: it belongs to another installation, or a later term
   * has written it.
   */
  async put(key: WantedKey, writer: Writer): Promise<boolean> {
    try {
      const result = await this.#keys.updateOne(
        {
          _id: key.hash,
          $or: [
            { 'source.owner': writer.owner, term: { $lte: writer.term } },
            { 'source.owner': { $ne: writer.owner }, status: 'removed' },
          ],
        },
        {
          $set: {
            partnerId: key.partnerId,
            status: key.status,
            source: { owner: writer.owner, ...key.source },
            term: writer.term,
            updatedAt: this.#clock.now(),
          },
        },
        { upsert: true },
      );
      return result.matchedCount + result.upsertedCount === 1;
    } catch (error) {
      if (isDuplicateKey(error)) return false;
      throw error;
    }
  }

  /** Turns an own key into a tombstone; false when a later term has written it. */
  async remove(hash: string, writer: Writer): Promise<boolean> {
    const result = await this.#keys.updateOne(
      { _id: hash, 'source.owner': writer.owner, term: { $lte: writer.term } },
      { $set: { status: 'removed', term: writer.term, updatedAt: this.#clock.now() } },
    );
    return result.matchedCount === 1;
  }

  /** Deletes own tombstones that are old enough. */
  async purge(writer: Writer): Promise<void> {
    await this.#keys.deleteMany({
      'source.owner': writer.owner,
      status: 'removed',
      term: { $lte: writer.term },
      updatedAt: { $lt: later(this.#clock.now(), -TOMBSTONE_MS) },
    });
  }

  /** Tells ingest that the keys are complete. */
  async markSynced(writer: Writer): Promise<void> {
    await this.#sync.updateOne(
      { _id: SYNCED },
      { $set: { syncedAt: this.#clock.now(), owner: writer.owner, term: writer.term } },
      { upsert: true },
    );
  }

  /** Notes when keys were used; never moves a date back. */
  async touch(hashes: readonly string[], usedAt: Date): Promise<void> {
    await this.#keys.updateMany({ _id: { $in: [...hashes] } }, { $max: { lastUsedAt: usedAt } });
  }
}
