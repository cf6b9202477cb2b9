/** Creates accounts and reads them for workers. The unique indexes decide every race. */
import type { Collection, Db } from 'mongodb';
import type { CreationFact } from '../application/reasons.ts';
import { normalizeEmail, type Application } from '../application/fields.ts';
import type { Mode } from '../partner/key-terms.ts';
import { joinCalls, type JoinedAnswer } from '../platform/process/batcher.ts';
import type { Clock } from '../platform/process/clock.ts';
import { newId } from '../platform/stores/ids.ts';
import { databaseSpan } from '../platform/stores/mongo.ts';
import { JOINED_AT_MOST, joinInserts } from '../platform/stores/mongo-joined.ts';
import { bounded } from '../platform/stores/mongo-read.ts';
import { inSpan } from '../platform/process/tracing.ts';
import { accountCollection, NOT_ERASED, type Account } from './account.ts';

/** A try fails if the other account is released between insert and read. */
const CREATE_TRIES = 5;
const RELEASED_PAGE = 500;
const uniqueFields = [
  ['email', 'emailNormalized'],
  ['ein', 'ein'],
] as const;

export class AccountStore {
  readonly #collection: Collection<Account>;
  readonly #clock: Clock;
  readonly #mode: Mode;
  readonly #insert: (account: Account) => Promise<boolean>;
  readonly #read = joinCalls<string, Account | undefined>(JOINED_AT_MOST, (ids) =>
    this.#readTogether(ids),
  );

  constructor(options: { readonly db: Db; readonly clock: Clock; readonly mode?: Mode }) {
    this.#mode = options.mode ?? {};
    this.#collection = accountCollection(options.db, this.#mode);
    this.#clock = options.clock;
    this.#insert = joinInserts(this.#collection, ({ emailNormalized }) => emailNormalized);
  }

  draft(
    application: Application,
    { requestId, partnerId }: { readonly requestId: string; readonly partnerId: string },
  ): Account {
    const now = this.#clock.now();
    return {
      _id: newId('acc', now),
      ...application,
      emailNormalized: normalizeEmail(application.email),
      requestId,
      partnerId,
      createdAt: now,
    };
  }

  create(account: Account): Promise<CreationFact> {
    return inSpan(databaseSpan('insert', this.#collection), async (span) => {
      const fact = await this.#createOrFind(account);
      span.setAttribute('partner_ingest.account', fact.kind);
      return fact;
    });
  }

  async #createOrFind(account: Account): Promise<CreationFact> {
    for (let tries = 1; tries <= CREATE_TRIES; tries += 1) {
      if (await this.#insert(account)) return { kind: 'created', accountId: account._id };
      const fact = await this.whoHolds(account);
      if (fact !== undefined) return fact;
    }
    throw new Error('a key of the account is taken, but nobody holds it');
  }

  /** MongoDB's error names only one index, so all three keys are looked up. */
  async whoHolds(account: Account): Promise<CreationFact | undefined> {
    const { partnerId } = account;
    const among = this.#mode.test ? { partnerId, judged: true as const } : {};
    const found = await this.#collection
      .find(
        {
          $or: [
            { requestId: account.requestId },
            { ...among, emailNormalized: account.emailNormalized },
            { ...among, ein: account.ein },
          ],
        },
        {
          projection: { requestId: 1, emailNormalized: 1, ein: 1, partnerId: 1, erasedAt: 1 },
          readConcern: 'majority',
          ...bounded,
        },
      )
      .toArray();
    const own = found.find((other) => other.requestId === account.requestId);
    // Happens until the erasure is repeated, or its place expires.
    if (own?.erasedAt !== undefined) throw new Error('the request is being erased');
    if (own !== undefined) return { kind: 'own', accountId: own._id };
    const holders = uniqueFields.flatMap(([field, key]) => {
      const holder = found.find((other) => other[key] === account[key]);
      if (holder === undefined) return [];
      const { requestId } = holder;
      return [{ field, requestId, samePartner: holder.partnerId === partnerId }];
    });
    return holders.length === 0 ? undefined : { kind: 'taken', holders };
  }

  read(accountId: string): Promise<Account | undefined> {
    return this.#read(accountId);
  }

  async #readTogether(ids: readonly string[]): Promise<JoinedAnswer<Account | undefined>[]> {
    const found = await this.#collection
      .find({ _id: { $in: [...new Set(ids)] }, ...NOT_ERASED }, bounded)
      .toArray();
    const accounts = new Map(found.map((account) => [account._id, account]));
    return ids.map((id) => ({ answer: accounts.get(id) }));
  }

  /** Removes former data of accounts released before `until`. True if more may be due. */
  async forgetReleased(until: Date): Promise<boolean> {
    const over = await this.#collection
      .find(
        { released: { $exists: true }, releasedAt: { $lte: until } },
        { projection: { _id: 1 }, ...bounded },
      )
      .limit(RELEASED_PAGE)
      .toArray();
    if (over.length > 0) {
      const ids = over.map(({ _id }) => _id);
      await this.#collection.updateMany({ _id: { $in: ids } }, { $unset: { released: true } });
    }
    return over.length === RELEASED_PAGE;
  }
}
