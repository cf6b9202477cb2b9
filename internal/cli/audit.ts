/** `audit`: lists requests and accounts that are late or contradict each other. */
import { styleText } from 'node:util';
import type { CheckedAccount } from '../account/account-queries.ts';
import { pause } from '../platform/deadline.ts';
import { printable, table } from '../platform/terminal.ts';
import { states, type State } from '../submission/states.ts';
import type { CheckedRecord } from '../submission/support-queries.ts';
import { checkRecord, kinds, type Kind } from './check-records.ts';
import { EXIT, type Call, type Command, type ExitCode } from './command.ts';
import { FINDINGS_LISTED, SECOND_LOOK_MS, SHORTEST_RETENTION_MS } from './limits.ts';

export const audit: Command = {
  name: 'audit',
  positionals: [],
  about: 'check that every accepted request is in exactly one place; list what is stuck',
  details:
    'Reads all requests and accounts, a page at a time, while the service runs; what seems wrong is looked at twice. Exit code 1 when there is a problem; notices alone are 0.',
  options: ['since'],
  examples: ['audit', 'audit --since 24h', 'audit --json'],
  run: runAudit,
};

interface Finding {
  readonly kind: Kind;
  readonly id: string;
}

class Report {
  readonly byState: Record<string, number> = {};
  readonly counts: Partial<Record<Kind, number>> = {};
  readonly listed: Finding[] = [];
  accepted = 0;
  accounts = 0;
  released = 0;
  pastRetention = 0;

  add(kind: Kind, id: string): void {
    const count = (this.counts[kind] ?? 0) + 1;
    this.counts[kind] = count;
    if (count <= FINDINGS_LISTED) this.listed.push({ kind, id });
  }

  get problems(): number {
    const all = Object.entries(this.counts) as [Kind, number][];
    return all
      .filter(([kind]) => kinds[kind][0] === 'problem')
      .reduce((sum, [, count]) => sum + count, 0);
  }
}

async function runAudit(call: Call): Promise<ExitCode> {
  const { desk, values, clock } = call;
  const report = new Report();
  const onHold = new Set((await desk.holds.list()).map(({ _id }) => _id));
  for await (const page of desk.submissions.checkedPages(values.since)) {
    for (const record of page) {
      report.byState[record.state] = (report.byState[record.state] ?? 0) + 1;
      if (record.httpStatus === 202) report.accepted += 1;
    }
    await checkTwice(
      page,
      (some) => checkRecords(some, onHold, call),
      (ids) => desk.submissions.checked(ids),
      report,
    );
  }
  for await (const page of desk.accounts.checkedPages(values.since)) {
    report.accounts += page.length;
    for (const { _id, mail } of page)
      if ((mail?.possible ?? 0) > 1) report.add('mailed_twice', _id);
    report.released += page.filter((account) => account.releasedAt !== undefined).length;
    await checkTwice(
      page,
      (some) => checkAccounts(some, call, report),
      (ids) => desk.accounts.checked('_id', ids),
      report,
    );
  }
  if (values.json) printJson(call, report);
  else print(call, report, clock.now());
  return report.problems === 0 ? EXIT.ok : EXIT.found;
}

/** The service keeps running, so a suspect is read again before it counts as a finding. */
async function checkTwice<Document extends { readonly _id: string }>(
  page: readonly Document[],
  check: (some: readonly Document[]) => Promise<Finding[]>,
  readAgain: (ids: readonly string[]) => Promise<Document[]>,
  report: Report,
): Promise<void> {
  const suspects = new Set((await check(page)).map((finding) => finding.id));
  if (suspects.size === 0) return;
  await pause(SECOND_LOOK_MS);
  for (const { kind, id } of await check(await readAgain([...suspects]))) report.add(kind, id);
}

async function checkRecords(
  records: readonly CheckedRecord[],
  onHold: ReadonlySet<string>,
  { desk, clock }: Call,
): Promise<Finding[]> {
  const ids = records.map(({ _id }) => _id);
  const found = await desk.accounts.checked('requestId', ids);
  const accounts = new Map(found.map((account) => [account.requestId, account]));
  const options = { now: clock.now(), onHold };
  return records.flatMap((record) =>
    checkRecord(record, accounts.get(record._id), options).map((kind) => ({
      kind,
      id: record._id,
    })),
  );
}

/** An account outlives its request's retention; before that, the request must exist. */
async function checkAccounts(
  accounts: readonly CheckedAccount[],
  { desk, clock }: Call,
  report: Report,
): Promise<Finding[]> {
  const requestIds = accounts.map(({ requestId }) => requestId);
  const there = new Set((await desk.submissions.checked(requestIds)).map(({ _id }) => _id));
  const orphans = accounts.filter((account) => !there.has(account.requestId));
  return orphans.flatMap(({ _id, createdAt }): Finding[] => {
    const ageMs = clock.now().getTime() - createdAt.getTime();
    if (ageMs <= SHORTEST_RETENTION_MS) return [{ kind: 'account_without_request', id: _id }];
    // The setting may have been anything from a day up when the request became final.
    if (ageMs <= desk.accountRequestsKeptMs) return [{ kind: 'request_expired_or_lost', id: _id }];
    report.pastRetention += 1;
    return [];
  });
}

function printJson({ out }: Call, report: Report): void {
  out.json({
    requests_by_state: report.byState,
    accepted: report.accepted,
    accounts: report.accounts,
    accounts_released: report.released,
    accounts_whose_request_is_past_retention: report.pastRetention,
    problems: report.problems,
    findings: Object.entries(report.counts).map(([kind, count]) => ({
      kind,
      weight: kinds[kind as Kind][0],
      meaning: kinds[kind as Kind][1],
      count,
      ids: report.listed.filter((finding) => finding.kind === kind).map((finding) => finding.id),
    })),
  });
}

function print({ out }: Call, report: Report, now: Date): void {
  const { byState, counts } = report;
  const known = states.filter((state) => byState[state] !== undefined);
  const others = Object.keys(byState).filter((state) => !states.includes(state as State));
  const total = Object.values(byState).reduce((sum, count) => sum + count, 0);
  out.line(`${styleText('bold', 'Requests')} at ${now.toISOString().slice(0, 19)}Z`);
  const rows = [...known, ...others].map((state) => [printable(state), String(byState[state])]);
  out.line(
    table([...rows, ['all', String(total)], ['of these accepted (202)', String(report.accepted)]]),
  );
  const released = report.released === 0 ? '' : `, ${report.released} of them released`;
  const past =
    report.pastRetention === 0
      ? ''
      : `, ${report.pastRetention} whose request is past its retention`;
  out.line(`${styleText('bold', 'Accounts')}  ${report.accounts}${released}${past}`);
  for (const [kind, count] of Object.entries(counts) as [Kind, number][]) {
    const [weight, meaning] = kinds[kind];
    out.line(
      `\n${styleText(weight === 'problem' ? 'red' : 'yellow', weight)}  ${count} ${kind}: each ${meaning}`,
    );
    const ids = report.listed
      .filter((finding) => finding.kind === kind)
      .map((finding) => finding.id);
    for (const id of ids) out.line(`  ${printable(id)}`);
    if (count > ids.length) out.line(`  … and ${count - ids.length} more`);
  }
  out.line(
    report.problems === 0
      ? `\n${styleText('green', 'All is where it should be:')} every accepted request is in exactly one state, and accounts and requests agree.`
      : `\n${styleText('red', `${report.problems} problem(s).`)} "partner-ingest show ID" tells more of each; docs/operations.md says what to do.`,
  );
}
