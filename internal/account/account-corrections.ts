/**
 * What an operator may do to an account: mail it again, correct its address, release its e-mail and
 * EIN, erase it.
 */
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

  /**
   * Lets the next attempt mail the same link once more; false if the account has changed or its
   * link was used.
   */
  async mailAgain(account: Account): Promise<boolean> {
    const result = await this.#collection.updateOne(
      { ...asSeen(account), ...LINK_NOT_USED },
      { $inc: { mailVersion: 1 }, $unset: { notifiedAt: true } },
    );
    return result.matchedCount === 1;
  }

  /**
   * Gives the account another address. Links that went to the old one stop working at once, because
   * a wrong address may be someone else's. `taken` when another account has the new address.
   */
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

  /**
   * Releases e-mail and EIN for a new application. One update of one document: at no instant do two
   * accounts hold them. The account keeps its id and its request, and an unused link stops working;
   * the use of a link is the login application's and stays. False if the account or its link has
   * changed.
   */
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

  /** Deletes the account. Its request keeps the account's id. */
  async erase(accountId: string): Promise<void> {
    await this.#collection.deleteOne({ _id: accountId });
  }
}

/** The account, if it is as the operator saw it and not released. */
function asSeen(account: Account) {
  return {
    _id: account._id,
    emailNormalized: account.emailNormalized,
    releasedAt: { $exists: false },
    mailVersion: account.mailVersion ?? { $exists: false },
  };
}
