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

export class KeyStore {
  readonly documents: KeyDocuments;
  readonly disabled: PartnersDisabled;
  readonly problems: SecretProblems;
  readonly #revoked: Collection<Revoked>;
  readonly #uses: Collection<KeyUse>;
  readonly #clock: Clock;

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

  async list(partnerId?: string): Promise<readonly PartnerKey[]> {
    const [document, revokedAt, uses] = await Promise.all([
      this.documents.read(),
      this.revoked(),
      this.#uses.find({}, bounded).toArray(),
    ]);
    const lastUsedAt = new Map(uses.map((row) => [row._id, row.lastUsedAt]));
    return (document?.keys ?? [])
      .filter((key) => partnerId === undefined || key.partnerId === partnerId)
      .map((key) => ({
        ...key,
        ...defined({ revokedAt: revokedAt.get(key.hash), lastUsedAt: lastUsedAt.get(key.hash) }),
      }))
      .toSorted((one, other) => (inOrder(one) < inOrder(other) ? -1 : 1));
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
    await this.#uses.bulkWrite(updates, { ordered: false });
  }

  async forgetUses(hashes: readonly string[]): Promise<void> {
    if (hashes.length > 0) await this.#uses.deleteMany({ _id: { $in: [...hashes] } });
  }
}

const inOrder = ({ partnerId, hash }: StoredKey): string => `${partnerId} ${hash}`;
