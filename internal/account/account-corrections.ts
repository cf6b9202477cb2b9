/** What an operator may do to an account: mail it again, correct its address, give its e-mail and EIN free, erase it. */
import type { Collection } from 'mongodb';
import { normalizeEmail } from '../application/identity.ts';
import type { Clock } from '../platform/clock.ts';
import { isDuplicateKey } from '../platform/mongo.ts';
import { releasedMark, type Account } from './account.ts';

export class AccountCorrections {
  readonly #collection: Collection<Account>;
  readonly #clock: Clock;

  constructor(options: { readonly collection: Collection<Account>; readonly clock: Clock }) {
    this.#collection = options.collection;
    this.#clock = options.clock;
  }

  /** Lets the next attempt mail the same link once more; false when the account changed meanwhile. */
  async mailAgain(account: Account): Promise<boolean> {
    const result = await this.#collection.updateOne(asSeen(account), {
      $inc: { mailVersion: 1 },
      $unset: { notifiedAt: true },
    });
    return result.matchedCount === 1;
  }

  /**
   * Gives the account another address. Links that went to the old one stop working at once, because a wrong address may
   * be someone else's. `taken` when another account has the new address.
   */
  async correctEmail(account: Account, email: string): Promise<'done' | 'changed_meanwhile' | 'taken'> {
    try {
      const result = await this.#collection.updateOne(asSeen(account), {
        $set: { email, emailNormalized: normalizeEmail(email) },
        $inc: { mailVersion: 1, linkVersion: 1 },
        $unset: { notifiedAt: true, activation: true },
      });
      return result.matchedCount === 1 ? 'done' : 'changed_meanwhile';
    } catch (error) {
      if (isDuplicateKey(error)) return 'taken';
      throw error;
    }
  }

  /**
   * Frees e-mail and EIN for a new application, in one update of one document, so that at no instant two accounts hold
   * them and none is lost. The account stays under its id, with its request, and cannot be logged in to by a link.
   */
  async release(account: Account): Promise<boolean> {
    const mark = releasedMark(account._id);
    const result = await this.#collection.updateOne(asSeen(account), {
      $set: {
        email: mark,
        emailNormalized: mark,
        ein: mark,
        businessName: mark,
        releasedAt: this.#clock.now(),
        released: { email: account.email, ein: account.ein, businessName: account.businessName },
      },
      $unset: { activation: true },
    });
    return result.matchedCount === 1;
  }

  /** Deletes the account: nothing of it may stay. Its request keeps the id. */
  async erase(accountId: string): Promise<void> {
    await this.#collection.deleteOne({ _id: accountId });
  }
}

/** The account as the operator saw it, and not released: whoever changed it since, wins. */
function asSeen(account: Account) {
  return {
    _id: account._id,
    emailNormalized: account.emailNormalized,
    releasedAt: { $exists: false },
    mailVersion: account.mailVersion ?? { $exists: false },
  };
}
