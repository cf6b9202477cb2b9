/**
 * Creates accounts, and reads them for workers and operators. The unique indexes decide every race.
 */
import type { Collection, Db, Filter, FindOptions } from 'mongodb';
import type { CreationFact } from '../application/reasons.ts';
import { normalizeEmail, type Application } from '../application/fields.ts';
import type { Mode } from '../partner/key-terms.ts';
import {
  joinCalls,
  JOINED_AT_MOST,
  joinInserts,
  type JoinedAnswer,
} from '../platform/stores/mongo-joined.ts';
import type { Clock } from '../platform/process/clock.ts';
import { newId } from '../platform/stores/ids.ts';
import { databaseSpan } from '../platform/stores/mongo.ts';
import { bounded, pagesOf, WALK_PAGE } from '../platform/stores/mongo-read.ts';
import { inSpan } from '../platform/process/tracing.ts';
import {
  accountCollection,
  holdersOf,
  NOT_ERASED,
  type Account,
  type Activation,
} from './account.ts';

/** A try fails if the other account is released between insert and read. */
const CREATE_TRIES = 5;
const RELEASED_PAGE = 500;

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
    const holders = holdersOf(account, found);
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

/* Operators' queries on accounts, bounded in time and number. */

const checkedFields = {
  requestId: 1,
  notifiedAt: 1,
  releasedAt: 1,
  closedAt: 1,
  createdAt: 1,
  'mail.possible': 1,
  'mail.ordered': 1,
  mailVersion: 1,
  'activation.usedAt': 1,
} as const;
export type CheckedAccount = Pick<
  Account,
  '_id' | 'mail' | (keyof typeof checkedFields & keyof Account)
> & {
  readonly activation?: Pick<Activation, 'usedAt'>;
};

/** The fields that name one account. */
export type AccountKey = '_id' | 'requestId' | 'emailNormalized' | 'ein';

export class AccountQueries {
  readonly #accounts: Collection<Account>;
  readonly #tests: Collection<Account>;

  constructor(db: Db) {
    this.#accounts = accountCollection(db);
    this.#tests = accountCollection(db, { test: true });
  }

  async find(by: AccountKey, value: string): Promise<Account | undefined> {
    for (const accounts of [this.#accounts, this.#tests]) {
      const found = await accounts.findOne({ [by]: value, ...NOT_ERASED }, bounded);
      if (found !== null) return found;
    }
    return undefined;
  }

  /**
   * Finds live and test accounts by address, EIN or request; by EIN no test whose EIN chooses its
   * ending.
   */
  async ofPerson(
    { email, ein }: { readonly email?: string; readonly ein?: string },
    requestIds: ReadonlySet<string>,
  ): Promise<Account[]> {
    const all = [...requestIds];
    const keys: { readonly live: Filter<Account>; readonly test?: Filter<Account> }[] = [
      ...(email === undefined ? [] : [{ live: { emailNormalized: email } }]),
      ...(ein === undefined ? [] : [{ live: { ein }, test: { ein, judged: true as const } }]),
      ...Array.from({ length: Math.ceil(all.length / WALK_PAGE) }, (_, page) => ({
        live: { requestId: { $in: all.slice(page * WALK_PAGE, (page + 1) * WALK_PAGE) } },
      })),
    ];
    const found = new Map<string, Account>();
    for (const { live, test = live } of keys) {
      for (const [accounts, key] of [
        [this.#accounts, live],
        [this.#tests, test],
      ] as const)
        for (const account of await accounts.find({ ...key, ...NOT_ERASED }, bounded).toArray())
          found.set(account._id, account);
    }
    return [...found.values()];
  }

  /** Live accounts that have one of these values; a query for each field. */
  async having(
    values: { readonly [Field in AccountKey]?: readonly string[] },
    options: Pick<FindOptions, 'projection' | 'readPreference'> = {},
  ): Promise<Account[]> {
    const asked = Object.entries(values).filter(([, some]) => some.length > 0);
    const found = asked.map(([field, some]) =>
      this.#accounts
        .find({ [field]: { $in: some }, ...NOT_ERASED } as Filter<Account>, {
          ...options,
          ...bounded,
        })
        .toArray(),
    );
    const accounts = (await Promise.all(found)).flat();
    return [...new Map(accounts.map((account) => [account._id, account])).values()];
  }

  /** Operators release accounts by hand, so there are few. */
  async released(): Promise<Account[]> {
    return this.#accounts
      .find({ released: { $exists: true }, releasedAt: { $gt: new Date(0) } }, bounded)
      .toArray();
  }

  checkedPages(after: string | undefined): AsyncGenerator<CheckedAccount[]> {
    return pagesOf(this.#accounts, NOT_ERASED, { projection: checkedFields, after });
  }

  /** Ids of accounts, or of their requests, that begin so. */
  async idsFrom(by: '_id' | 'requestId', prefix: string, limit: number): Promise<string[]> {
    const filter = { [by]: { $gte: prefix, $lt: `${prefix}~` }, ...NOT_ERASED };
    const found = await this.#accounts
      .find(filter, { projection: { requestId: 1 }, limit, ...bounded })
      .toArray();
    return found.map((account) => account[by]);
  }

  async checked(by: '_id' | 'requestId', ids: readonly string[]): Promise<CheckedAccount[]> {
    return this.#accounts
      .find({ [by]: { $in: ids }, ...NOT_ERASED }, { projection: checkedFields, ...bounded })
      .toArray();
  }
}
