/** Creates accounts and reads them for workers. The unique indexes decide every race. */
import type { Collection, Db } from 'mongodb';
import type { CreationFact } from '../application/decide.ts';
import { defined } from '../platform/defined.ts';
import { normalizeEmail } from '../application/identity.ts';
import type { Application } from '../application/parse-application.ts';
import { Batcher, type Outcome } from '../platform/batcher.ts';
import type { Clock } from '../platform/clock.ts';
import { newId } from '../platform/ids.ts';
import {
  databaseSpan,
  insertTogether,
  isDuplicateKey,
  NotDurableError,
  writePastLockConflicts,
} from '../platform/mongo.ts';
import { inSpan } from '../platform/tracing.ts';
import { accountCollection, type Account } from './account.ts';

/** An operator may release a key's holder between insert and read. */
const CREATE_TRIES = 5;

export class AccountStore {
  readonly #collection: Collection<Account>;
  readonly #clock: Clock;
  readonly #inserts = new Batcher<Account, boolean>((accounts) => this.#insertTogether(accounts));
  readonly #reads = new Batcher<string, Account | undefined>((ids) => this.#readTogether(ids));

  constructor(options: { readonly db: Db; readonly clock: Clock }) {
    this.#collection = accountCollection(options.db);
    this.#clock = options.clock;
  }

  /** `account` is set if this call created it. */
  async create(
    application: Application,
    owner: { readonly requestId: string; readonly partnerId: string },
  ): Promise<CreationFact & { readonly account?: Account }> {
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
    return inSpan(databaseSpan('insert', this.#collection), async (span) => {
      const fact = await this.#createOrFind(account);
      span?.set({ 'partner_ingest.account': fact.kind });
      return fact.kind === 'created' ? { ...fact, account } : fact;
    });
  }

  async #createOrFind(account: Account): Promise<CreationFact> {
    for (let tries = 1; tries <= CREATE_TRIES; tries += 1) {
      if (await this.#inserts.call(account)) return { kind: 'created', accountId: account._id };
      const fact = await this.#whoHolds(account);
      if (fact !== undefined) return fact;
    }
    throw new Error('a key of the account is taken, but nobody holds it');
  }

  async #insertTogether(wanted: readonly Account[]): Promise<Outcome<boolean>[]> {
    // The same order in every process prevents deadlocks.
    const accounts = wanted.toSorted((one, other) =>
      one.emailNormalized < other.emailNormalized ? -1 : 1,
    );
    const { n, writeErrors, durable } = await writePastLockConflicts(accounts, (some) =>
      insertTogether(this.#collection, some),
    );
    if (!durable) throw new NotDurableError('no majority acknowledged the accounts in time');
    if (n + writeErrors.length !== accounts.length)
      throw new Error('the answer does not account for every account');
    const failed = new Map(writeErrors.map((error) => [accounts[error.index], error]));
    return wanted.map((account) => {
      const error = failed.get(account);
      return error === undefined || isDuplicateKey(error)
        ? { result: error === undefined }
        : { error };
    });
  }

  /** The error names only one index, so all three keys are looked up. */
  async #whoHolds(account: Account): Promise<CreationFact | undefined> {
    const found = await this.#collection
      .find(
        {
          $or: [
            { requestId: account.requestId },
            { emailNormalized: account.emailNormalized },
            { ein: account.ein },
          ],
        },
        {
          projection: { requestId: 1, emailNormalized: 1, ein: 1, partnerId: 1 },
          readConcern: 'majority',
        },
      )
      .toArray();
    const own = found.find((other) => other.requestId === account.requestId);
    if (own !== undefined) return { kind: 'own', accountId: own._id };
    const byEmail = found.find((other) => other.emailNormalized === account.emailNormalized);
    const byEin = found.find((other) => other.ein === account.ein);
    if (byEmail === undefined && byEin === undefined) return undefined;
    const isElsewhere = (holder: typeof byEmail): boolean =>
      holder !== undefined && holder.partnerId !== account.partnerId;
    const elsewhere = [
      ...(isElsewhere(byEmail) ? (['email'] as const) : []),
      ...(isElsewhere(byEin) ? (['ein'] as const) : []),
    ];
    return {
      kind: 'taken',
      ...defined({ emailBy: byEmail?.requestId, einBy: byEin?.requestId }),
      ...(elsewhere.length === 0 ? {} : { elsewhere }),
    };
  }

  read(accountId: string): Promise<Account | undefined> {
    return this.#reads.call(accountId);
  }

  async #readTogether(ids: readonly string[]): Promise<{ result: Account | undefined }[]> {
    const found = await this.#collection.find({ _id: { $in: [...new Set(ids)] } }).toArray();
    const byId = new Map(found.map((account) => [account._id, account]));
    return ids.map((id) => ({ result: byId.get(id) }));
  }
}
