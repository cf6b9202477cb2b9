/** Operators' changes to an account: another e-mail, a corrected address, release, erasure. */
import type { Collection, Db } from 'mongodb';
import { normalizeEmail } from '../application/identity.ts';
import type { Clock } from '../platform/clock.ts';
import { isDuplicateKey } from '../platform/mongo.ts';
import { accountCollection, LINK_NOT_USED, releasedMark, type Account } from './account.ts';

export class AccountCorrections {
  readonly #collection: Collection<Account>;
  readonly #clock: Clock;

  constructor(options: { readonly db: Db; readonly clock: Clock }) {
    this.#collection = accountCollection(options.db);
    this.#clock = options.clock;
  }

  /** False if the account has changed or its link was used. */
  async mailAgain(account: Account): Promise<boolean> {
    const result = await this.#collection.updateOne(
      { ...asSeen(account), ...LINK_NOT_USED },
      { $inc: { mailVersion: 1 }, $unset: { notifiedAt: true } },
    );
    return result.matchedCount === 1;
  }

  /** Voids links sent to the old address, which may be another person's. */
  async correctEmail(account: Account, email: string): Promise<'done' | 'changed' | 'taken'> {
    try {
      const result = await this.#collection.updateOne(
        { ...asSeen(account), ...LINK_NOT_USED },
        {
          $set: { email, emailNormalized: normalizeEmail(email) },
          $inc: { mailVersion: 1, linkVersion: 1 },
          $unset: { notifiedAt: true, activation: true },
        },
      );
      return result.matchedCount === 1 ? 'done' : 'changed';
    } catch (error) {
      if (isDuplicateKey(error)) return 'taken';
      throw error;
    }
  }

  /** One update frees e-mail and EIN, so that two accounts never hold them. */
  async release(account: Account): Promise<boolean> {
    const mark = releasedMark(account._id);
    const used = account.activation?.usedAt !== undefined;
    const result = await this.#collection.updateOne(
      { ...asSeen(account), ...(used ? {} : LINK_NOT_USED) },
      {
        $set: {
          email: mark,
          emailNormalized: mark,
          ein: mark,
          businessName: mark,
          releasedAt: this.#clock.now(),
          released: { email: account.email, ein: account.ein, businessName: account.businessName },
        },
        ...(used ? {} : { $unset: { activation: true } }),
      },
    );
    return result.matchedCount === 1;
  }

  async erase(accountId: string): Promise<void> {
    await this.#collection.deleteOne({ _id: accountId });
  }
}

function asSeen(account: Account) {
  return {
    _id: account._id,
    emailNormalized: account.emailNormalized,
    releasedAt: { $exists: false },
    mailVersion: account.mailVersion ?? { $exists: false },
  };
}
