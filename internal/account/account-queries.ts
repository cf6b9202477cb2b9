/** Operators' queries on accounts, bounded in time and number. */
import type { Collection, Db, Filter } from 'mongodb';
import { bounded, pagesOf, WALK_PAGE } from '../platform/stores/mongo-read.ts';
import { accountCollection, NOT_ERASED, type Account, type Activation } from './account.ts';

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

export class AccountQueries {
  readonly #accounts: Collection<Account>;
  readonly #tests: Collection<Account>;

  constructor(db: Db) {
    this.#accounts = accountCollection(db);
    this.#tests = accountCollection(db, { test: true });
  }

  async find(
    by: '_id' | 'requestId' | 'emailNormalized' | 'ein',
    value: string,
  ): Promise<Account | undefined> {
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
