/** Creates accounts: one insert, and the unique indexes decide every race. */
import type { Collection } from 'mongodb';
import type { CreationFact } from '../application/decide.ts';
import { normalizeEmail } from '../application/identity.ts';
import type { Application } from '../application/parse-application.ts';
import type { Clock } from '../platform/clock.ts';
import { newId } from '../platform/ids.ts';
import { duplicateKeyIndex } from '../platform/mongo.ts';
import type { Account } from './account.ts';

/** The account in the way was gone when we looked: trying again settles it. */
export class AccountVanishedError extends Error {
  override readonly name = 'AccountVanishedError';
}

export class AccountStore {
  readonly #collection: Collection<Account>;
  readonly #clock: Clock;

  constructor(options: { readonly collection: Collection<Account>; readonly clock: Clock }) {
    this.#collection = options.collection;
    this.#clock = options.clock;
  }

  /** Creates the account of `requestId` once, however often it is called. Throws on database errors. */
  async create(
    application: Application,
    owner: { readonly requestId: string; readonly partnerId: string },
  ): Promise<CreationFact> {
    const account: Account = {
      _id: newId('acc'),
      email: application.email,
      emailNormalized: normalizeEmail(application.email),
      ein: application.ein,
      businessName: application.businessName,
      requestId: owner.requestId,
      partnerId: owner.partnerId,
      createdAt: this.#clock.now(),
    };
    try {
      await this.#collection.insertOne(account);
      return { kind: 'created', accountId: account._id };
    } catch (error) {
      if (duplicateKeyIndex(error) === undefined) throw error;
      return this.#whoHolds(account);
    }
  }

  /** The error names one index only, so all three keys are looked up. */
  async #whoHolds(account: Account): Promise<CreationFact> {
    const found = await this.#collection
      .find(
        { $or: [{ requestId: account.requestId }, { emailNormalized: account.emailNormalized }, { ein: account.ein }] },
        { projection: { requestId: 1, emailNormalized: 1, ein: 1 }, readConcern: 'majority' },
      )
      .toArray();
    const own = found.find((other) => other.requestId === account.requestId);
    if (own !== undefined) return { kind: 'own', accountId: own._id };
    const emailBy = found.find((other) => other.emailNormalized === account.emailNormalized)?.requestId;
    const einBy = found.find((other) => other.ein === account.ein)?.requestId;
    if (emailBy === undefined && einBy === undefined) throw new AccountVanishedError('the account in the way is gone');
    return {
      kind: 'taken',
      ...(emailBy === undefined ? {} : { emailBy }),
      ...(einBy === undefined ? {} : { einBy }),
    };
  }

  async read(accountId: string): Promise<Account | undefined> {
    return (await this.#collection.findOne({ _id: accountId })) ?? undefined;
  }

  /** Stores what the login application will check the link against; comes before each hand-over of the mail. */
  async setActivation(
    accountId: string,
    activation: { readonly tokenHash: string; readonly expiresAt: Date },
  ): Promise<void> {
    await this.#collection.updateOne({ _id: accountId }, { $set: { activation } });
  }

  async setNotified(accountId: string): Promise<void> {
    await this.#collection.updateOne({ _id: accountId }, { $set: { notifiedAt: this.#clock.now() } });
  }
}
