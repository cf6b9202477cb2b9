/** The partners' keys in MongoDB, as hashes. */
import type { Db, Document } from 'mongodb';
import { DAY_MS, later, type Clock } from '../platform/clock.ts';
import { defined } from '../platform/defined.ts';
import { bounded } from '../platform/mongo-read.ts';
import { isDuplicateKey } from '../platform/mongo.ts';
import { PartnersDisabled, type Flagged } from './flags.ts';
import type { KeySource, WantedKey } from './key-secret.ts';
import { KeySync } from './key-sync.ts';
import type { KeyTerms } from './key-terms.ts';

export const PARTNER_KEYS = 'partner_keys';

/** An operator has this time to see the alert and act. */
export const DEFER_MS = 600_000;
/** The use of a removed key is logged, and its document still compares terms. */
const TOMBSTONE_MS = DAY_MS;
export const KEYS_LISTED = 10_000;
/** Other requests can run between batches. */
const LOAD_BATCH = 1_000;

const isKey = { term: { $gte: 0 }, 'source.uid': { $type: 'string' } } as const;

export interface PartnerKey {
  /** SHA-256 in hex. */
  readonly _id: string;
  readonly partnerId: string;
  readonly status: 'active' | 'inactive' | 'removed';
  readonly inactiveBy?: KeySource;
  readonly terms?: KeyTerms;
  readonly source: KeySource;
  readonly term: number;
  readonly lastUsedAt?: Date;
  readonly activeAt?: Date;
  /** Absent while active and after a deferred end. */
  readonly endedAt?: Date;
  readonly deferredAt?: Date;
  /** An operator confirmed the deferred end. */
  readonly confirmedAt?: Date;
  /** An operator ended the key for good, whatever `status` says. */
  readonly revokedAt?: Date;
  readonly updatedAt: Date;
}

export interface LoadedKeys {
  readonly keys: readonly PartnerKey[];
  /** Operators disabled these, whatever their Secrets say. */
  readonly disabled: ReadonlySet<string>;
  /** Includes revoked keys. */
  readonly removed: readonly PartnerKey[];
  /** The keys are at least as new as this. */
  readonly version: string;
}

export type KeyChange =
  | {
      readonly kind: 'put';
      readonly key: WantedKey;
      readonly activeAt?: Date | undefined;
      readonly endedAt: Date | undefined;
    }
  | { readonly kind: 'remove'; readonly hash: string; readonly endedAt: Date | undefined }
  | { readonly kind: 'defer'; readonly hash: string };

const hashOf = (change: KeyChange): string =>
  change.kind === 'put' ? change.key.hash : change.hash;

export class KeyStore {
  readonly sync: KeySync;
  readonly #disabled: PartnersDisabled;
  readonly #db: Db;
  readonly #clock: Clock;

  constructor(options: { readonly db: Db; readonly clock: Clock }) {
    this.sync = new KeySync(options.db);
    this.#disabled = new PartnersDisabled(options);
    this.#db = options.db;
    this.#clock = options.clock;
  }

  get #keys() {
    return this.#db.collection<PartnerKey>(PARTNER_KEYS);
  }

  /**
   * Undefined before a controller has compared all keys. A causally consistent session reads the
   * version first, so the keys are never older.
   */
  load(): Promise<LoadedKeys | undefined> {
    return this.#db.client.withSession({ causalConsistency: true }, async (session) => {
      const version = await this.sync.version(session);
      if (version === undefined) return undefined;
      const disabled = await this.#disabled.list(session);
      const projection = { partnerId: 1, status: 1, terms: 1, revokedAt: 1 };
      const all = await this.#keys
        .find(isKey, { projection, session, batchSize: LOAD_BATCH, ...bounded })
        .toArray();
      const isRemoved = ({ status, revokedAt }: PartnerKey): boolean =>
        status === 'removed' || revokedAt !== undefined;
      return {
        keys: all.filter((key) => !isRemoved(key)),
        removed: all.filter(isRemoved),
        disabled: new Set(disabled.map(({ _id }) => _id)),
        version,
      };
    });
  }

  async all(): Promise<readonly PartnerKey[]> {
    return this.#keys.find(isKey, { batchSize: LOAD_BATCH }).toArray();
  }

  async list(partnerId: string | undefined): Promise<readonly PartnerKey[]> {
    const filter = defined({ partnerId });
    return this.#keys
      .find(filter, bounded)
      .sort({ partnerId: 1, _id: 1 })
      .limit(KEYS_LISTED)
      .toArray();
  }

  /** `prefix` is hexadecimal; returns at most two keys. */
  async beginningWith(prefix: string): Promise<readonly PartnerKey[]> {
    return this.#keys
      .find({ _id: { $gte: prefix, $lt: `${prefix}g` } }, bounded)
      .limit(2)
      .toArray();
  }

  async revoke(hash: string): Promise<boolean> {
    const { matchedCount } = await this.#keys.updateOne(
      { _id: hash, revokedAt: { $exists: false } },
      { $set: { revokedAt: this.#clock.now() } },
    );
    await this.sync.count(undefined, { synced: false });
    return matchedCount === 1;
  }

  disabled(): Promise<readonly Flagged[]> {
    return this.#disabled.list();
  }

  /** Notifies ingest in any case, because an earlier command may have died before that. */
  async disable(partnerId: string, by: string): Promise<boolean> {
    const isNew = await this.#disabled.set(partnerId, by);
    await this.sync.count(undefined, { synced: false });
    return isNew;
  }

  async enable(partnerId: string, by: string): Promise<boolean> {
    const isNew = await this.#disabled.clear(partnerId, by);
    await this.sync.count(undefined, { synced: false });
    return isNew;
  }

  /** Excludes confirmed ends. */
  async deferred(): Promise<readonly PartnerKey[]> {
    return this.#keys
      .find({ deferredAt: { $exists: true }, confirmedAt: { $exists: false } }, bounded)
      .toArray();
  }

  async confirm(hashes: readonly string[]): Promise<number> {
    const { matchedCount } = await this.#keys.updateMany(
      { _id: { $in: [...hashes] }, deferredAt: { $exists: true } },
      { $set: { confirmedAt: this.#clock.now() } },
    );
    return matchedCount;
  }

  async touch(hashes: readonly string[], usedAt: Date): Promise<void> {
    await this.#keys.updateMany({ _id: { $in: [...hashes] } }, { $max: { lastUsedAt: usedAt } });
  }

  takeLease(holder: string): Promise<number | undefined> {
    return this.sync.take(holder, async () => {
      const newest = await this.#keys.findOne(
        {},
        { sort: { term: -1 }, projection: { term: 1 }, ...bounded },
      );
      return newest?.term ?? 0;
    });
  }

  /** After this, no earlier writer changes any key. */
  async raise(term: number): Promise<void> {
    await this.#keys.updateMany({ term: { $lt: term } }, { $set: { term } });
  }

  /**
   * Rejects with `SupersededError` if a later term has begun; its first round sees earlier writes.
   */
  async write(changes: readonly KeyChange[], term: number): Promise<void> {
    if (changes.length === 0) return;
    await this.#reserve(changes, term);
    // A later leader has either raised the term of the reserved keys or is seen here.
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
   * New keys get tombstones first, because a delayed insert could bring back a key that has ended
   * since.
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

  async purge(term: number): Promise<void> {
    await this.#keys.deleteMany({
      status: 'removed',
      revokedAt: { $exists: false },
      ...upTo(term),
      updatedAt: { $lt: later(this.#clock.now(), -TOMBSTONE_MS) },
    });
  }
}

const upTo = (term: number) => ({ term: { $not: { $gt: term } } });

function fieldsOf({ partnerId, terms, source, inactiveBy }: WantedKey, term: number) {
  return { partnerId, terms, source, term, ...defined({ inactiveBy }) };
}

function updateFor(change: KeyChange, term: number, now: Date): Document {
  if (change.kind === 'defer') return { $set: { deferredAt: now, term } };
  const ended = defined({ endedAt: change.endedAt });
  const $unset = {
    deferredAt: '',
    confirmedAt: '',
    ...(change.endedAt === undefined ? { endedAt: '' } : {}),
    ...(change.kind === 'put' && change.key.inactiveBy !== undefined ? {} : { inactiveBy: '' }),
  };
  if (change.kind === 'remove')
    return { $set: { status: 'removed', term, updatedAt: now, ...ended }, $unset };
  const began = defined({ activeAt: change.activeAt });
  const fields = { ...fieldsOf(change.key, term), status: change.key.status, updatedAt: now };
  return { $set: { ...fields, ...began, ...ended }, $unset };
}
