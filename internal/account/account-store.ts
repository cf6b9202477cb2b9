/** Creates accounts: one insert, and the unique indexes decide every race. */
import { MongoServerError, type Collection } from 'mongodb';
import type { CreationFact } from '../application/decide.ts';
import { normalizeEmail } from '../application/identity.ts';
import type { Application } from '../application/parse-application.ts';
import { ended, mayHaveArrived, toForget, type Intent, type MailLedger } from '../mail/ledger.ts';
import type { HandOver } from '../mail/mailer.ts';
import type { Clock } from '../platform/clock.ts';
import { newId } from '../platform/ids.ts';
import { isDuplicateKey } from '../platform/mongo.ts';
import type { Account } from './account.ts';

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
    for (let tries = 1; ; tries += 1) {
      try {
        await this.#collection.insertOne(account);
        return { kind: 'created', accountId: account._id };
      } catch (error) {
        if (!isDuplicateKey(error) && !isLockConflict(error)) throw error;
        const fact = await this.#whoHolds(account);
        if (fact !== undefined) return fact;
        if (tries === CONFLICT_TRIES) throw error;
      }
    }
  }

  /** The error names one index at most, so all three keys are looked up; undefined when nobody holds any (any more). */
  async #whoHolds(account: Account): Promise<CreationFact | undefined> {
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
    if (emailBy === undefined && einBy === undefined) return undefined;
    return {
      kind: 'taken',
      ...(emailBy === undefined ? {} : { emailBy }),
      ...(einBy === undefined ? {} : { einBy }),
    };
  }

  async read(accountId: string): Promise<Account | undefined> {
    return (await this.#collection.findOne({ _id: accountId })) ?? undefined;
  }

  /** Accounts whose applicant may have got more than one mail, at most `limit`; `secondMails` tells why. */
  async findMailedTwice(limit: number): Promise<Account[]> {
    return this.#collection
      .find({ 'mail.possible': { $gt: 1 } })
      .limit(limit)
      .toArray();
  }

  /**
   * Comes before each hand-over of the mail, in one update: what the login application will check the link against, and
   * that a mail may be out from now on. `account` is as it was read under the claim. Doing it twice changes nothing.
   */
  async beginHandOver(
    account: Account,
    intent: Intent,
    activation: { readonly tokenHash: string; readonly expiresAt: Date },
  ): Promise<void> {
    const path = pathOf(intent.claim);
    const forgotten = toForget(account.mail).map((claim) => [pathOf(claim), true] as const);
    await pastLockConflicts(() =>
      this.#collection.updateOne(
        { _id: account._id, [path]: { $exists: false } },
        {
          $set: { activation, [path]: intent },
          $inc: { 'mail.begun': 1, 'mail.possible': 1 },
          ...(forgotten.length === 0 ? {} : { $unset: Object.fromEntries(forgotten) }),
        },
      ),
    );
  }

  /**
   * Notes what came of it, also when the claim is lost by now: a mail that is out stays out. Doing it twice changes nothing.
   * Gives the ledger as it is then, or undefined where nothing was left to note.
   */
  async endHandOver(accountId: string, intent: Intent, handOver: HandOver): Promise<MailLedger | undefined> {
    const now = this.#clock.now();
    const entry = ended(intent, handOver, now);
    const path = pathOf(intent.claim);
    const arrived = mayHaveArrived(entry);
    const account = await pastLockConflicts(() =>
      this.#collection.findOneAndUpdate(
        { _id: accountId, ...(arrived ? {} : { [path]: { $exists: true }, [`${path}.result`]: { $exists: false } }) },
        {
          $set: { [path]: entry, ...(handOver.result === 'accepted' ? { notifiedAt: now } : {}) },
          ...(arrived ? {} : { $inc: { 'mail.possible': -1 } }),
        },
        { returnDocument: 'after', projection: { mail: 1 } },
      ),
    );
    return account?.mail;
  }
}

function pathOf(claim: number): `mail.handOvers.${number}` {
  return `mail.handOvers.${claim}`;
}

const WRITE_CONFLICT = 112;
const CONFLICT_TRIES = 5;

/**
 * Writes that race for several unique keys can wait for each other until the server ends one of them: "deadlock
 * detected" in FerretDB, WriteConflict in MongoDB. That is nobody's fault, and trying again settles it.
 */
function isLockConflict(error: unknown): boolean {
  return error instanceof MongoServerError && (error.code === WRITE_CONFLICT || error.message.includes('deadlock'));
}

async function pastLockConflicts<T>(write: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await write();
    } catch (error) {
      if (tries === CONFLICT_TRIES || !isLockConflict(error)) throw error;
    }
  }
}
