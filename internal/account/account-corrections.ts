/** Operators' changes to an account. */
import type { Collection, Db, Filter, UpdateFilter } from 'mongodb';
import { eachField, normalizeEmail, type Application } from '../application/fields.ts';
import type { Clock } from '../platform/process/clock.ts';
import { isDuplicateKey, unlessDuplicate, updateInOrder } from '../platform/stores/mongo.ts';
import {
  accountCollection,
  erasedPlace,
  LINK_NOT_USED,
  NOT_ERASED,
  orderedMails,
  releasedMark,
  type Account,
} from './account.ts';

/** A try fails if a pending insert came before it. */
const ERASE_TRIES = 5;

/** Notes erasures outside the database, before they are done. */
export interface ErasureRegister {
  /** Returns what `act` does: whether it is done. */
  erasing(
    kind: 'erase' | 'erase body',
    requestId: string,
    act: () => Promise<boolean>,
  ): Promise<boolean>;
}

/** Where none is named. */
export const UNREGISTERED: ErasureRegister = {
  erasing: (_kind, _requestId, act) => act(),
};

export class AccountCorrections {
  readonly #collection: Collection<Account>;
  readonly #both: readonly Collection<Account>[];
  readonly #clock: Clock;
  readonly #register: ErasureRegister;

  constructor(options: {
    readonly db: Db;
    readonly clock: Clock;
    readonly register?: ErasureRegister | undefined;
  }) {
    this.#register = options.register ?? UNREGISTERED;
    this.#collection = accountCollection(options.db);
    this.#both = [this.#collection, accountCollection(options.db, { test: true })];
    this.#clock = options.clock;
  }

  /** False if the account has changed, an e-mail was begun meanwhile or its link was used. */
  async mailAgain(account: Account): Promise<boolean> {
    return this.#update(
      { ...asSeen(account), ...LINK_NOT_USED },
      { ...ordersMail(account), $unset: { notifiedAt: true } },
    );
  }

  /**
   * Voids links sent to the old address, which may be another person's. `claimed`: an e-mail may
   * have been begun. False if the account has changed, or another one has the address.
   */
  async correctEmail(account: Account, email: string, claimed = false): Promise<boolean> {
    try {
      return await this.#update(
        { ...asSeen(account, { whileMailed: claimed }), ...LINK_NOT_USED },
        {
          ...ordersMail(account, {
            $set: { email, emailNormalized: normalizeEmail(email) },
            $inc: { linkVersion: 1 },
          }),
          $unset: { notifiedAt: true, activation: true },
        },
      );
    } catch (error) {
      if (isDuplicateKey(error)) return false;
      throw error;
    }
  }

  /** Frees e-mail address and EIN in one update, for other accounts. */
  async release(account: Account): Promise<boolean> {
    const mark = releasedMark(account._id);
    const used = account.activation?.usedAt !== undefined;
    return this.#update(
      { ...asSeen(account), ...(used ? {} : LINK_NOT_USED) },
      {
        $set: {
          ...eachField(() => mark),
          emailNormalized: mark,
          releasedAt: this.#clock.now(),
          released: eachField((_field, key) => account[key]) as Application,
        },
        ...(used ? {} : { $unset: { activation: true } }),
      },
    );
  }

  /** Voids unused links, even if the request is reopened later. */
  async close(ids: readonly string[]): Promise<void> {
    if (ids.length === 0) return;
    const open = { closedAt: { $exists: false } };
    const closedAt = this.#clock.now();
    const voided = { $set: { closedAt }, $inc: { linkVersion: 1 }, $unset: { activation: true } };
    const q = { ...open, ...LINK_NOT_USED };
    await updateInOrder(this.#collection, [{ ids, q, u: voided }]);
    await updateInOrder(this.#collection, [{ ids, q: open, u: { $set: { closedAt } } }]);
  }

  /** Called for a reopened request: orders another e-mail, unless the link has been used. */
  async reopen(account: Account): Promise<boolean> {
    const used = account.activation?.usedAt !== undefined;
    return this.#update(
      { ...asSeen(account), ...(used ? {} : LINK_NOT_USED) },
      used
        ? { $unset: { closedAt: true } }
        : { ...ordersMail(account), $unset: { notifiedAt: true, closedAt: true } },
    );
  }

  async #update(filter: Filter<Account>, update: UpdateFilter<Account>): Promise<boolean> {
    return (await this.#collection.updateOne(filter, update)).matchedCount === 1;
  }

  /** Deletes the request's account, live or test, and leaves an `ErasedPlace`. */
  async erase(requestId: string): Promise<void> {
    await this.#register.erasing('erase', requestId, () => this.#erase(requestId));
  }

  async #erase(requestId: string): Promise<true> {
    for (const accounts of this.#both) {
      for (let tries = 1; !(await this.#takePlace(accounts, requestId)); tries += 1) {
        if (tries > ERASE_TRIES) throw new Error('the account came back each time');
        await accounts.deleteOne({ requestId });
      }
      // After a restore the index may be missing that keeps place and account apart.
      await accounts.deleteMany({ requestId, ...NOT_ERASED });
    }
    return true;
  }

  /** Prevents a later account of the request; an existing one stays. */
  async takePlace(requestId: string): Promise<void> {
    for (const accounts of this.#both) await this.#takePlace(accounts, requestId);
  }

  async freePlace(requestId: string): Promise<void> {
    const { _id } = erasedPlace(requestId, this.#clock.now());
    for (const accounts of this.#both) await accounts.deleteOne({ _id });
  }

  /** False if the request has an account. */
  #takePlace(accounts: Collection<Account>, requestId: string): Promise<boolean> {
    const { _id, ...place } = erasedPlace(requestId, this.#clock.now());
    const taken = accounts.updateOne({ _id }, { $setOnInsert: place }, { upsert: true });
    return unlessDuplicate(taken);
  }
}

/** Counts another e-mail as ordered; what came unordered before stays more than was ordered. */
function ordersMail(
  account: Account,
  { $set = {}, $inc = {} }: { readonly $set?: object; readonly $inc?: object } = {},
) {
  const { mail } = account;
  const ordered = mail && { 'mail.ordered': Math.min(mail.possible, orderedMails(account)) + 1 };
  return { $set: { ...$set, ...ordered }, $inc: { ...$inc, mailVersion: 1 } };
}

/** Matches if no order has changed the account and, unless `whileMailed`, no e-mail was begun. */
function asSeen(account: Account, { whileMailed = false } = {}): Filter<Account> {
  const { _id, emailNormalized, mailVersion, mail } = account;
  return {
    _id,
    emailNormalized,
    releasedAt: { $exists: false },
    mailVersion: mailVersion ?? { $exists: false },
    ...(whileMailed ? {} : { 'mail.begun': mail?.begun ?? { $exists: false } }),
  };
}
