/** Finds requests and accounts that are late or contradict each other. */
import { orderedMails } from '../account/account.ts';
import type { AccountQueries, CheckedAccount } from '../account/account-store.ts';
import { pause } from '../platform/process/deadline.ts';
import { DAY_MS, type Clock } from '../platform/process/clock.ts';
import type { CheckedRecord, SupportQueries } from '../submission/support-queries.ts';
import { firstIdAt } from '../platform/stores/ids.ts';
import { checkRecord, findingName, printOf, type Kind, type Suspect } from './rules.ts';
import type { PartnerHolds } from '../partner/flags.ts';
import type { Collection, Db, Filter } from 'mongodb';
import type { IndexDefinition } from '../platform/stores/mongo-indexes.ts';
import { bounded } from '../platform/stores/mongo-read.ts';

const READ_AGAIN = 500;
/** The settings allow no retention below a day. */
const SHORTEST_RETENTION_MS = DAY_MS;
/** Work in progress settles within this time. */
const SECOND_LOOK_MS = 1_000;

export interface AuditStores {
  readonly submissions: SupportQueries;
  readonly accounts: AccountQueries;
  readonly holds: Pick<PartnerHolds, 'list'>;
  readonly aside: Pick<PutAside, 'of' | 'ids'>;
  /** The shortest retention of an account's request, by today's settings. */
  readonly accountRequestsKeptMs: number;
}

interface AuditedPage {
  readonly records: readonly CheckedRecord[];
  readonly accounts: readonly CheckedAccount[];
  readonly pastRetention: number;
  readonly suspects: readonly Suspect[];
  /** Findings that operators put aside. */
  readonly putAside: number;
  /** The last id of the page. */
  readonly reached: string | undefined;
}

/** Pages of requests, then of accounts, each read when it is asked for. */
export async function* auditedPages(
  stores: AuditStores,
  clock: Clock,
  {
    since,
    after,
  }: {
    readonly since?: Date | undefined;
    /** Goes on after the id that a page reached. */
    readonly after?: string | undefined;
  } = {},
): AsyncGenerator<AuditedPage> {
  const { submissions, accounts } = stores;
  const firstAt = (prefix: 'req' | 'acc') => since && firstIdAt(prefix, since);
  const inAccounts = after?.startsWith('acc_') === true;
  const requests = inAccounts ? [] : submissions.checkedPages(after ?? firstAt('req'));
  for await (const records of requests) {
    const check = (some: readonly CheckedRecord[]) => checkRecords(some, stores, clock);
    const found = await checkedTwice(records, check, (ids) => submissions.checked(ids));
    const parted = await withoutAside(found, stores);
    yield { records, accounts: [], pastRetention: 0, ...parted, reached: records.at(-1)?._id };
  }
  for await (const page of accounts.checkedPages(inAccounts ? after : firstAt('acc'))) {
    let pastRetention = 0;
    const check = async (some: readonly CheckedAccount[]): Promise<Suspect[]> => {
      const alone = await orphansOf(some, stores, clock);
      pastRetention += alone.pastRetention;
      return alone.orphans;
    };
    const orphans = await checkedTwice(page, check, (ids) => accounts.checked('_id', ids));
    const parted = await withoutAside([...orphans, ...mailedTwiceOf(page)], stores);
    yield { records: [], accounts: page, pastRetention, ...parted, reached: page.at(-1)?._id };
  }
}

async function withoutAside(found: readonly Suspect[], { aside }: Pick<AuditStores, 'aside'>) {
  const put = await aside.of(found.map(findingName));
  const suspects = found.filter((one) => !put.has(findingName(one)));
  return { suspects, putAside: found.length - suspects.length };
}

const mailedTwiceOf = (accounts: readonly CheckedAccount[]): Suspect[] =>
  accounts
    .filter((account) => (account.mail?.possible ?? 0) > orderedMails(account))
    .map((account) => ['mailed_twice', account._id, printOf(undefined, account)]);

/** What is wrong at these requests and accounts now, put aside or not. */
export async function suspectsAt(
  ids: readonly string[],
  stores: Omit<AuditStores, 'aside'>,
  clock: Clock,
) {
  const records = await stores.submissions.checked(ids);
  const accounts = await stores.accounts.checked('_id', ids);
  const ofRecords = await checkRecords(records, stores, clock);
  const { orphans } = await orphansOf(accounts, stores, clock);
  return { found: [...ofRecords, ...orphans, ...mailedTwiceOf(accounts)], accounts };
}

/** The suspects that still exist and are not put aside. */
export async function unsettled<Found extends { readonly kind: Kind; readonly id: string }>(
  suspects: readonly Found[],
  stores: AuditStores,
  clock: Clock,
): Promise<ReadonlySet<Found>> {
  const still = new Set<string>();
  for (let from = 0; from < suspects.length; from += READ_AGAIN) {
    const ids = [...new Set(suspects.slice(from, from + READ_AGAIN).map(({ id }) => id))];
    const { found } = await suspectsAt(ids, stores, clock);
    const { suspects: open } = await withoutAside(found, stores);
    for (const [kind, id] of open) still.add(`${kind} ${id}`);
  }
  return new Set(suspects.filter(({ kind, id }) => still.has(`${kind} ${id}`)));
}

/** Where operators put findings aside: how many still exist, and what else is found. */
export async function whereAside(stores: AuditStores, clock: Clock) {
  const ids = new Set(await stores.aside.ids());
  const { found } = await suspectsAt([...ids], stores, clock);
  return withoutAside(found, stores);
}

/** A suspect is checked twice, because the service keeps running. */
async function checkedTwice<Document>(
  page: readonly Document[],
  check: (some: readonly Document[]) => Promise<Suspect[]>,
  readAgain: (ids: readonly string[]) => Promise<Document[]>,
): Promise<Suspect[]> {
  const suspects = new Set((await check(page)).map(([, id]) => id));
  if (suspects.size === 0) return [];
  await pause(SECOND_LOOK_MS);
  return check(await readAgain([...suspects]));
}

async function checkRecords(
  records: readonly CheckedRecord[],
  { accounts, holds }: Pick<AuditStores, 'accounts' | 'holds'>,
  clock: Clock,
): Promise<Suspect[]> {
  const onHold = new Set((await holds.list()).map(({ _id }) => _id));
  const ids = records.map(({ _id }) => _id);
  const found = await accounts.checked('requestId', ids);
  const byRequest = new Map(found.map((account) => [account.requestId, account]));
  const options = { now: clock.now(), onHold };
  return records.flatMap((record) => {
    const account = byRequest.get(record._id);
    return checkRecord(record, account, options).map((kind): Suspect => [
      kind,
      record._id,
      printOf(record, account),
    ]);
  });
}

/** An account's request must exist until its retention is over. */
async function orphansOf(
  accounts: readonly CheckedAccount[],
  { submissions, accountRequestsKeptMs }: Omit<AuditStores, 'aside'>,
  clock: Clock,
) {
  const requestIds = accounts.map(({ requestId }) => requestId);
  const there = new Set((await submissions.checked(requestIds)).map(({ _id }) => _id));
  const alone = accounts.filter(({ requestId }) => !there.has(requestId));
  const orphans = alone.flatMap((account): Suspect[] => {
    const { _id, createdAt } = account;
    const suspect = (kind: Kind): Suspect => [kind, _id, printOf(undefined, account)];
    const ageMs = clock.now().getTime() - createdAt.getTime();
    if (ageMs <= SHORTEST_RETENTION_MS) return [suspect('account_without_request')];
    // The retention may have been as short as a day when this request ended.
    return ageMs <= accountRequestsKeptMs ? [suspect('request_expired_or_lost')] : [];
  });
  return { orphans, pastRetention: alone.length - orphans.length };
}

/*
 * Which findings operators put aside: of `operator_audit`, the service reads these entries and
 * ensures the indexes. Only operators write it, and only they read the rest (`operators/trail`).
 */

const ASIDE_READ = 1_000;

export const OPERATOR_AUDIT = 'operator_audit';

export const operatorAuditIndexes: readonly IndexDefinition[] = [
  {
    collection: OPERATOR_AUDIT,
    name: 'operator_audit_request',
    key: { requestId: 1 },
    sparse: true,
  },
  { collection: OPERATOR_AUDIT, name: 'operator_audit_ends', key: { ends: 1 }, sparse: true },
  { collection: OPERATOR_AUDIT, name: 'operator_audit_aside', key: { aside: 1 }, sparse: true },
  {
    collection: OPERATOR_AUDIT,
    name: 'operator_audit_expiry',
    key: { expiresAt: 1 },
    expireAfterSeconds: 0,
  },
];

/** What the service must know of an entry. */
export interface AsideEntry {
  readonly _id: string;
  readonly at: Date;
  readonly by: string;
  readonly why?: string;
  readonly requestId?: string;
  readonly accountId?: string;
  /** Findings of the self-audit that the operator put aside, as `findingName` has them. */
  readonly aside?: readonly string[];
  readonly result: string;
  /** Id of the entry that this one ends. */
  readonly ends?: string;
}

export const operatorAudit = <Entry extends AsideEntry>(db: Db): Collection<Entry> =>
  db.collection<Entry>(OPERATOR_AUDIT);

export class PutAside {
  readonly #entries: Collection<AsideEntry>;

  constructor(db: Db) {
    this.#entries = operatorAudit(db);
  }

  /** Returns which of these findings are put aside, each with the operator's entry. */
  async of(findings: readonly string[]): Promise<ReadonlyMap<string, AsideEntry>> {
    if (findings.length === 0) return new Map();
    const filter = { aside: { $in: [...findings] }, ends: { $exists: true }, result: 'done' };
    const entries = await this.#entries.find(filter as Filter<AsideEntry>, bounded).toArray();
    return new Map(entries.flatMap((entry) => (entry.aside ?? []).map((name) => [name, entry])));
  }

  /** Returns the requests and accounts whose findings the newest such entries put aside. */
  async ids(): Promise<string[]> {
    const done = { aside: { $exists: true }, ends: { $exists: true }, result: 'done' } as const;
    const entries = await this.#entries
      .find(done, bounded)
      .sort({ _id: -1 })
      .limit(ASIDE_READ)
      .toArray();
    return entries.flatMap(({ requestId = [], accountId = requestId }) => accountId);
  }
}
