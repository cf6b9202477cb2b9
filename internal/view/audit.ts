/** The self-audit: requests and accounts that are late or contradict each other. */
import type { CheckedAccount } from '../account/account-queries.ts';
import { pause } from '../platform/deadline.ts';
import { DAY_MS, type Clock } from '../platform/clock.ts';
import type { CheckedRecord } from '../submission/support-queries.ts';
import { checkRecord, kinds, type Kind } from './check-records.ts';
import type { Reads } from './reads.ts';

const FINDINGS_LISTED = 20;
/** The settings allow no retention below a day. */
const SHORTEST_RETENTION_MS = DAY_MS;
/** Work in progress settles within this time. */
const SECOND_LOOK_MS = 1_000;

export type AuditView = Awaited<ReturnType<typeof auditView>>;

type Suspect = readonly [Kind, id: string];

export type AuditStores = Pick<
  Reads,
  'submissions' | 'accounts' | 'holds' | 'accountRequestsKeptMs'
>;

/** Reads everything that came at or after `since`, a page at a time; a rejection of `betweenPages` ends it. */
export async function auditView(
  stores: AuditStores,
  clock: Clock,
  since: Date | undefined,
  betweenPages: () => Promise<void> = async () => {},
) {
  const { submissions, accounts } = stores;
  const found = new Map<Kind, { count: number; readonly ids: string[] }>();
  const add = (suspects: readonly Suspect[]): void => {
    for (const [kind, id] of suspects) {
      const one = found.get(kind) ?? { count: 0, ids: [] };
      one.count += 1;
      if (one.count <= FINDINGS_LISTED) one.ids.push(id);
      found.set(kind, one);
    }
  };
  const onHold = new Set((await stores.holds.list()).map(({ _id }) => _id));
  const requestsByState: Record<string, number> = {};
  const counts = {
    accepted: 0,
    accounts: 0,
    accountsReleased: 0,
    accountsWhoseRequestIsPastRetention: 0,
  };
  for await (const page of submissions.checkedPages(since)) {
    for (const { state, httpStatus } of page) {
      requestsByState[state] = (requestsByState[state] ?? 0) + 1;
      if (httpStatus === 202) counts.accepted += 1;
    }
    const check = (some: readonly CheckedRecord[]) => checkRecords(some, onHold, stores, clock);
    add(await checkedTwice(page, check, (ids) => submissions.checked(ids)));
    await betweenPages();
  }
  for await (const page of accounts.checkedPages(since)) {
    counts.accounts += page.length;
    counts.accountsReleased += page.filter(({ releasedAt }) => releasedAt !== undefined).length;
    const mailedTwice = page.filter(({ mail }) => (mail?.possible ?? 0) > 1);
    add(mailedTwice.map(({ _id }) => ['mailed_twice', _id]));
    const check = async (some: readonly CheckedAccount[]): Promise<Suspect[]> => {
      const { orphans, pastRetention } = await orphansOf(some, stores, clock);
      counts.accountsWhoseRequestIsPastRetention += pastRetention;
      return orphans;
    };
    add(await checkedTwice(page, check, (ids) => accounts.checked('_id', ids)));
    await betweenPages();
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
  onHold: ReadonlySet<string>,
  { accounts }: AuditStores,
  clock: Clock,
): Promise<Suspect[]> {
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
