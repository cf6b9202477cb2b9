/** The partners' keys, their revocations and their last uses. */
import type { Collection, Db } from 'mongodb';
import type { Clock } from '../platform/process/clock.ts';
import { defined } from '../platform/process/defined.ts';
import { bounded } from '../platform/stores/mongo-read.ts';
import { unlessDuplicate } from '../platform/stores/mongo.ts';
import { PartnersDisabled } from './flags.ts';
import { KeyDocuments, type StoredKey } from './key-document.ts';
import { SecretProblems } from './kept-findings.ts';

export const KEYS_REVOKED = 'partner_keys_revoked';
export const KEY_USES = 'partner_key_uses';

export interface PartnerKey extends StoredKey {
  readonly lastUsedAt?: Date;
  /** Revoked by an operator, for good, whatever its Secret says. */
  readonly revokedAt?: Date;
}

/** Never deleted, so that no Secret brings the key back. */
interface Revoked {
  readonly _id: string;
  readonly revokedAt: Date;
}

interface KeyUse {
  readonly _id: string;
  readonly lastUsedAt: Date;
}

/** As many as there are keys are read, and ingest notes a use once a minute. */
const USES_SHARED_MS = 3_000;

interface KeysRead {
  readonly version: number | undefined;
  readonly keys: readonly StoredKey[];
  readonly byPartner: ReadonlyMap<string, readonly StoredKey[]>;
}

interface UsesRead {
  readonly atMs: number;
  readonly uses: Promise<ReadonlyMap<string, Date>>;
}

export class KeyStore {
  readonly documents: KeyDocuments;
  readonly disabled: PartnersDisabled;
  readonly problems: SecretProblems;
  readonly #revoked: Collection<Revoked>;
  readonly #uses: Collection<KeyUse>;
  readonly #clock: Clock;
  /** Read again when the document has another version. */
  #read: KeysRead | undefined;
  /** One read serves all who ask meanwhile. */
  #reading: Promise<KeysRead> | undefined;
  #usesRead: UsesRead | undefined;

  constructor(options: { readonly db: Db; readonly clock: Clock }) {
    this.documents = new KeyDocuments(options);
    this.disabled = new PartnersDisabled(options);
    this.problems = new SecretProblems(options);
    this.#revoked = options.db.collection<Revoked>(KEYS_REVOKED);
    this.#uses = options.db.collection<KeyUse>(KEY_USES);
    this.#clock = options.clock;
  }

  /**
   * Times by key hash, also of keys that no Secret holds now. Operators revoke by hand, so there
   * are few.
   */
  async revoked(): Promise<ReadonlyMap<string, Date>> {
    const all = await this.#revoked.find({}, bounded).toArray();
    return new Map(all.map(({ _id, revokedAt }) => [_id, revokedAt]));
  }

  /** By partner, then hash. Last uses may be some seconds old. */
  async list(partnerId?: string): Promise<readonly PartnerKey[]> {
    this.#reading ??= this.#readKeys().finally(() => (this.#reading = undefined));
    const [{ keys, byPartner }, revokedAt, lastUsedAt] = await Promise.all([
      this.#reading,
      this.revoked(),
      this.lastUses(),
    ]);
    const wanted = partnerId === undefined ? keys : (byPartner.get(partnerId) ?? []);
    return wanted.map((key) => ({
      ...key,
      ...defined({ revokedAt: revokedAt.get(key.hash), lastUsedAt: lastUsedAt.get(key.hash) }),
    }));
  }

  async #readKeys(): Promise<KeysRead> {
    const known = this.#read;
    const version = await this.documents.version();
    if (known !== undefined && known.version === version) return known;
    const document = await this.documents.read();
    const keys = (document?.keys ?? [])
      .map((key) => [inOrder(key), key] as const)
      .toSorted(([one], [other]) => (one < other ? -1 : 1))
      .map(([, key]) => key);
    const byPartner = Map.groupBy(keys, (key) => key.partnerId);
    this.#read = { version: document?.version, keys, byPartner };
    return this.#read;
  }

  /** Times by key hash, some seconds old. */
  lastUses(): UsesRead['uses'] {
    const atMs = this.#clock.monotonicMs();
    if (this.#usesRead === undefined || atMs - this.#usesRead.atMs > USES_SHARED_MS) {
      const all = this.#uses.find({}, bounded).toArray();
      const uses = all.then((rows) => new Map(rows.map((row) => [row._id, row.lastUsedAt])));
      this.#usesRead = { atMs, uses };
      // A failed read is forgotten, so that the next caller reads again.
      uses.catch(() => (this.#usesRead = undefined));
    }
    return this.#usesRead.uses;
  }

  /** False if the key was revoked before. */
  revoke(hash: string): Promise<boolean> {
    const revokedAt = this.#clock.now();
    return unlessDuplicate(this.#revoked.insertOne({ _id: hash, revokedAt }));
  }

  async touch(hashes: readonly string[], lastUsedAt: Date): Promise<void> {
    // All processes write in one order, which prevents most deadlocks.
    const updates = hashes.toSorted().map((_id) => ({
      updateOne: { filter: { _id }, update: { $max: { lastUsedAt } }, upsert: true },
    }));
    this.#usesRead = undefined;
    await this.#uses.bulkWrite(updates, { ordered: false });
  }

  async forgetUses(hashes: readonly string[]): Promise<void> {
    this.#usesRead = undefined;
    if (hashes.length > 0) await this.#uses.deleteMany({ _id: { $in: [...hashes] } });
  }
}

const inOrder = ({ partnerId, hash }: StoredKey): string => `${partnerId} ${hash}`;
