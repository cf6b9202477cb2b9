/** `erase`: everything personal about one applicant goes, from records, raw bodies and accounts; the trail stays. */
import type { Account } from '../account/account.ts';
import { printable, table } from '../platform/terminal.ts';
import { isOpen } from '../submission/states.ts';
import type { SubmissionRecord } from '../submission/submission.ts';
import { EXIT, type Call, type Command, type Desk, type ExitCode } from './command.ts';
import { RefusedError } from './refused.ts';
import { UsageError } from './options.ts';
import { BODY_PAGE, ERASE_LISTED, ERASE_PROGRESS, READ_DEADLINE_MS } from './limits.ts';
import { applicantOf, isAccountOf, relationOf, type Person } from './person.ts';
import { pagesOf, requestById } from './read-requests.ts';

export const erase: Command = {
  name: 'erase',
  positionals: ['[REQUEST_ID]'],
  about: 'remove everything personal about one applicant, on their request',
  details:
    'By address, by EIN, or by a request (which stands for its address). Reads every kept body, so it takes a while: half a minute for a million small requests on an idle machine. Requests keep id, states and times; their bodies, digests and applicants go, the account with its mail ledger is deleted. Without --yes it lists what it would erase. See docs/privacy.md for what it cannot reach: backups, sent mails.',
  options: ['email', 'ein', 'yes', 'as', 'why'],
  examples: [
    'erase --email jane@example.com',
    'erase --email jane@example.com --yes --as jane --why "request of 2026-11-20"',
    'erase req_01m7yefdj3fantjpk5mzvj8mwh --yes',
  ],
  run: eraseApplicant,
};

const searched = { _id: 1, state: 1, version: 1, applicant: 1, body: 1, receivedAt: 1 } as const;
type Searched = Pick<SubmissionRecord, '_id' | 'state' | 'version' | 'applicant' | 'body'>;

/** What is to go: a person, and one request for certain. */
interface Subject {
  readonly person: Person;
  readonly requestId?: string;
}

interface Found {
  readonly what: string;
  readonly id: string;
  readonly state: string;
  readonly result: 'erased' | 'would be erased' | 'body erased' | 'body would be erased' | 'changed' | 'still open';
}

async function eraseApplicant(call: Call): Promise<ExitCode> {
  const subject = await subjectOf(call);
  const { desk, out, values } = call;
  const found: Found[] = [];
  let count = 0;
  const note = (entry: Found): void => {
    count += 1;
    if (found.length < ERASE_LISTED) found.push(entry);
  };
  const work = async (): Promise<boolean> => {
    const requestIds = await eraseRecords(subject, call, note);
    await eraseAccounts(subject, requestIds, call, note);
    return count > 0;
  };
  if (values.yes) {
    const requestId = subject.requestId === undefined ? {} : { requestId: subject.requestId };
    await desk.trail.record({ action: 'erase', ...requestId }, work);
  } else await work();

  if (values.json) out.json({ dry_run: !values.yes, count, listed: found });
  else {
    if (found.length > 0) {
      out.line(
        table(
          found.map(({ what, id, state, result }) => [what, id, state, result].map(printable)),
          '',
        ),
      );
    }
    if (count > found.length) out.line(`… and ${count - found.length} more`);
    if (count === 0) out.line('nothing holds this applicant');
    else if (!values.yes) out.line(`${count} found; nothing was changed; add --yes to erase. This cannot be undone.`);
    else out.line(`${count} done; backups still hold them until they are past their own retention (docs/privacy.md)`);
  }
  const left = found.some((entry) => entry.result === 'changed' || entry.result === 'still open');
  if (left) out.note('some changed meanwhile or are being worked on: run it again in a minute');
  return count === 0 || left ? EXIT.found : EXIT.ok;
}

async function subjectOf(call: Call): Promise<Subject> {
  const [id] = call.positionals;
  const { email, ein } = call.values;
  if ([id, email, ein].filter((given) => given !== undefined).length !== 1) {
    throw new UsageError('erase: give one of REQUEST_ID, --email or --ein');
  }
  if (id === undefined) {
    return { person: { ...(email === undefined ? {} : { email }), ...(ein === undefined ? {} : { ein }) } };
  }
  const record = await requestById(id, call.desk, call.clock.now());
  // A worker that had the body in hand may have made the account since; otherwise nothing is left.
  const late = record.erasedAt === undefined ? null : await call.desk.accounts.findOne({ requestId: record._id });
  if (record.erasedAt !== undefined && late === null) throw new RefusedError(`${record._id} was erased before`);
  // Its EIN may be someone else's, mistyped: only the address stands for the person.
  const own = late?.emailNormalized ?? applicantOf(record).email;
  return { person: own === undefined ? {} : { email: own }, requestId: record._id };
}

/** Walks over all records; gives the ids of the person's own, which may have accounts. */
async function eraseRecords(subject: Subject, call: Call, note: (entry: Found) => void): Promise<Set<string>> {
  const { desk, values, out } = call;
  const own = new Set<string>();
  let looked = 0;
  for await (const page of pagesOf(desk.requests, {}, { size: BODY_PAGE, projection: searched })) {
    for (const record of page as Searched[]) {
      const relation = record._id === subject.requestId ? 'applicant' : relationOf(subject.person, record);
      if (relation === 'none') continue;
      if (relation === 'applicant') own.add(record._id);
      note(await eraseRecord(record, relation === 'mentioned', desk, values.yes));
    }
    looked += page.length;
    if (looked % ERASE_PROGRESS === 0) out.note(`looked at ${looked} requests`);
  }
  return own;
}

async function eraseRecord(record: Searched, bodyOnly: boolean, desk: Desk, yes: boolean): Promise<Found> {
  const entry = { what: 'request', id: record._id, state: record.state };
  // Another applicant's request still needs its body.
  if (bodyOnly && isOpen(record.state)) return { ...entry, result: 'still open' };
  if (!yes) return { ...entry, result: bodyOnly ? 'body would be erased' : 'would be erased' };
  const done = bodyOnly
    ? await desk.moves.eraseBody(record)
    : await desk.moves.erase(record, `operator erase by ${desk.trail.by}`);
  return { ...entry, result: !done ? 'changed' : bodyOnly ? 'body erased' : 'erased' };
}

/** Accounts come after their records: a worker has lost its claim by then, and makes none any more. */
async function eraseAccounts(
  subject: Subject,
  requestIds: ReadonlySet<string>,
  { desk, values }: Call,
  note: (entry: Found) => void,
): Promise<void> {
  const { email, ein } = subject.person;
  const keys = [
    ...(email === undefined ? [] : [{ emailNormalized: email }]),
    ...(ein === undefined ? [] : [{ ein }]),
    ...inPages([...requestIds]).map((ids) => ({ requestId: { $in: ids } })),
  ];
  const accounts = new Map<string, Account>();
  for (const key of keys) {
    for (const account of await desk.accounts.find(key).maxTimeMS(READ_DEADLINE_MS).toArray()) {
      if (isAccountOf(subject.person, account) || account.requestId === subject.requestId) {
        accounts.set(account._id, account);
      }
    }
  }
  for (const account of accounts.values()) {
    if (values.yes) await desk.corrections.erase(account._id);
    note({
      what: 'account',
      id: account._id,
      state: account.releasedAt === undefined ? 'in use' : 'released',
      result: values.yes ? 'erased' : 'would be erased',
    });
  }
}

function inPages(ids: readonly string[]): string[][] {
  const pages: string[][] = [];
  for (let start = 0; start < ids.length; start += BODY_PAGE) pages.push(ids.slice(start, start + BODY_PAGE));
  return pages;
}
