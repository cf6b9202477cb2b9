/** Walks over all that is stored: requests and accounts that are late or contradict each other. */
import type { AccountQueries, CheckedAccount } from '../account/account-queries.ts';
import { pause } from '../platform/process/deadline.ts';
import { DAY_MS, type Clock } from '../platform/process/clock.ts';
import type { CheckedRecord, SupportQueries } from '../submission/support-queries.ts';
import { checkRecord, kinds, type Kind } from './rules.ts';
import type { PartnerHolds } from '../partner/flags.ts';

const FINDINGS_LISTED = 20;
const READ_AGAIN = 500;
/** The settings allow no retention below a day. */
const SHORTEST_RETENTION_MS = DAY_MS;
/** Work in progress settles within this time. */
const SECOND_LOOK_MS = 1_000;

export type AuditView = Awaited<ReturnType<typeof auditView>>;

export type Suspect = readonly [Kind, id: string];

export interface AuditStores {
  readonly submissions: SupportQueries;
  readonly accounts: AccountQueries;
  readonly holds: Pick<PartnerHolds, 'list'>;
  /** The shortest retention of an account's request, by today's settings. */
  readonly accountRequestsKeptMs: number;
}

interface AuditedPage {
  readonly records: readonly CheckedRecord[];
  readonly accounts: readonly CheckedAccount[];
  readonly pastRetention: number;
  readonly suspects: readonly Suspect[];
}

/** Reads everything that came at or after `since`. */
export async function auditView(stores: AuditStores, clock: Clock, since: Date | undefined) {
  const found = new Map<Kind, { count: number; readonly ids: string[] }>();
  const requestsByState: Record<string, number> = {};
  const counts = {
    accepted: 0,
    accounts: 0,
    accountsReleased: 0,
    accountsWhoseRequestIsPastRetention: 0,
  };
  for await (const page of auditedPages(stores, clock, since)) {
    for (const { state, httpStatus } of page.records) {
      requestsByState[state] = (requestsByState[state] ?? 0) + 1;
      if (httpStatus === 202) counts.accepted += 1;
    }
    const { accounts } = page;
    counts.accounts += accounts.length;
    counts.accountsReleased += accounts.filter(({ releasedAt }) => releasedAt !== undefined).length;
    counts.accountsWhoseRequestIsPastRetention += page.pastRetention;
    for (const [kind, id] of page.suspects) {
      const one = found.get(kind) ?? { count: 0, ids: [] };
      one.count += 1;
      if (one.count <= FINDINGS_LISTED) one.ids.push(id);
      found.set(kind, one);
    }
  }
  const findings = [...found].map(([kind, one]) => ({ kind, ...kinds[kind], ...one }));
  const problems = findings.filter(({ weight }) => weight === 'problem');
  return {
    requestsByState,
    ...counts,
    problems: problems.reduce((sum, one) => sum + one.count, 0),
    /** Each has at most `FINDINGS_LISTED` ids. */
    findings,
  };
}

/** A page at a time, each read when it is asked for: first of requests, then of accounts. */
export async function* auditedPages(
  stores: AuditStores,
  clock: Clock,
  since?: Date,
): AsyncGenerator<AuditedPage> {
  const { submissions, accounts } = stores;
  for await (const records of submissions.checkedPages(since)) {
    const check = (some: readonly CheckedRecord[]) => checkRecords(some, stores, clock);
    const suspects = await checkedTwice(records, check, (ids) => submissions.checked(ids));
    yield { records, accounts: [], pastRetention: 0, suspects };
  }
  for await (const page of accounts.checkedPages(since)) {
    let pastRetention = 0;
    const check = async (some: readonly CheckedAccount[]): Promise<Suspect[]> => {
      const alone = await orphansOf(some, stores, clock);
      pastRetention += alone.pastRetention;
      return alone.orphans;
    };
    const orphans = await checkedTwice(page, check, (ids) => accounts.checked('_id', ids));
    const mailedTwice = page.filter(({ mail }) => (mail?.possible ?? 0) > 1);
    const suspects = [...orphans, ...mailedTwice.map(({ _id }): Suspect => ['mailed_twice', _id])];
    yield { records: [], accounts: page, pastRetention, suspects };
  }
}

/** Those that are still so. */
export async function unsettled(
  suspects: readonly Suspect[],
  stores: AuditStores,
  clock: Clock,
): Promise<Suspect[]> {
  const still = new Set<string>();
  for (let from = 0; from < suspects.length; from += READ_AGAIN) {
    const ids = [...new Set(suspects.slice(from, from + READ_AGAIN).map(([, id]) => id))];
    const records = await stores.submissions.checked(ids);
    const accounts = await stores.accounts.checked('_id', ids);
    const found = await checkRecords(records, stores, clock);
    const { orphans } = await orphansOf(accounts, stores, clock);
    for (const suspect of [...found, ...orphans]) still.add(String(suspect));
  }
  return suspects.filter((suspect) => still.has(String(suspect)));
}

/** The service keeps running, so a suspect is read again before it counts as a finding. */
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
  { accounts, holds }: AuditStores,
  clock: Clock,
): Promise<Suspect[]> {
  const onHold = new Set((await holds.list()).map(({ _id }) => _id));
  const ids = records.map(({ _id }) => _id);
  const found = await accounts.checked('requestId', ids);
  const byRequest = new Map(found.map((account) => [account.requestId, account]));
  const options = { now: clock.now(), onHold };
  return records.flatMap((record) => {
    const kindsFound = checkRecord(record, byRequest.get(record._id), options);
    return kindsFound.map((kind): Suspect => [kind, record._id]);
  });
}

/** An account outlives its request's retention; before that, the request must exist. */
async function orphansOf(
  accounts: readonly CheckedAccount[],
  { submissions, accountRequestsKeptMs }: AuditStores,
  clock: Clock,
) {
  const requestIds = accounts.map(({ requestId }) => requestId);
  const there = new Set((await submissions.checked(requestIds)).map(({ _id }) => _id));
  const alone = accounts.filter(({ requestId }) => !there.has(requestId));
  const orphans = alone.flatMap(({ _id, createdAt }): Suspect[] => {
    const ageMs = clock.now().getTime() - createdAt.getTime();
    if (ageMs <= SHORTEST_RETENTION_MS) return [['account_without_request', _id]];
    // The setting may have been anything from a day up when the request became final.
    return ageMs <= accountRequestsKeptMs ? [['request_expired_or_lost', _id]] : [];
  });
  return { orphans, pastRetention: alone.length - orphans.length };
}
