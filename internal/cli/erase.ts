/** `erase`: removes one applicant's personal data from records, raw bodies and accounts. */
import { defined } from '../platform/defined.ts';
import { printable, table } from '../platform/terminal.ts';
import { isEmailAddress } from '../application/email-address.ts';
import type { Person } from '../application/find-person.ts';
import { isOpen } from '../submission/states.ts';
import type { Account } from '../account/account.ts';
import type { PersonalRecord } from '../submission/support-queries.ts';
import {
  CommandError,
  EXIT,
  type Call,
  type Command,
  type Desk,
  type ExitCode,
} from './command.ts';
import { UsageError, maybeRequestId } from './options.ts';
import { ALIKE_LISTED, CHANGES_LISTED, REOPEN_TRIES } from './limits.ts';
import { alikeOf, otherHalf, type Alike } from './left-after-erasure.ts';
import { normalizeEmail } from '../application/identity.ts';
import { applicantOf, isAccountOf, relationOf } from './match-person.ts';
import { submissionById } from './command.ts';
import { Progress } from './progress.ts';

export const erase: Command = {
  name: 'erase',
  positionals: [maybeRequestId],
  about: 'remove everything personal about one applicant, on their request',
  details:
    'By address, by EIN, or by a request (which stands for its address, and goes last). What is known by its fields goes first; then every kept body is read, which takes a while and says how far it is. Ctrl-C stops it between two pages; after any interruption the same command may be given again. Requests keep id, states and times; their bodies, digests and applicants go, the account with its mail ledger is deleted. Without --yes it lists what it would erase. See docs/privacy.md for what it does not find: what is compressed or encoded inside a body, backups, sent mails.',
  options: ['email', 'ein', 'yes', 'as', 'why'],
  examples: [
    'erase --email jane@example.com',
    'erase --email jane@example.com --yes --as jane --why "request of 2026-11-20"',
    'erase req_01m7yefdj3fantjpk5mzvj8mwh --yes',
  ],
  run: eraseApplicant,
};

/** A person, and the request that named them. */
interface Subject {
  readonly person: Person;
  readonly requestId?: string;
}

interface Found {
  readonly what: string;
  readonly id: string;
  readonly state: string;
  readonly result:
    | 'erased'
    | 'would be erased'
    | 'body erased'
    | 'body would be erased'
    | 'changed'
    | 'still open'
    | 'comes last';
}

class Tally {
  readonly listed: Found[] = [];
  /** The walk must not count these again. */
  readonly settled = new Set<string>();
  readonly gone = new Set<string>();
  count = 0;
  left = false;
  /** EINs found by address, or addresses found by EIN. */
  readonly others = new Set<string>();
  stopped = false;

  note(entry: Found): void {
    this.count += 1;
    if (this.listed.length < CHANGES_LISTED) this.listed.push(entry);
    if (['changed', 'still open', 'comes last'].includes(entry.result)) this.left = true;
    else this.settled.add(entry.id);
    if (entry.result === 'erased' || entry.result === 'would be erased') this.gone.add(entry.id);
  }
}

async function eraseApplicant(call: Call): Promise<ExitCode> {
  const subject = await subjectOf(call);
  const { desk, values } = call;
  const tally = new Tally();
  const work = async (): Promise<boolean> => {
    await eraseKnown(subject, call, tally);
    await walkBodies(subject, call, tally);
    await eraseNamed(subject, call, tally);
    return tally.count > 0;
  };
  const requestId = subject.requestId === undefined ? {} : { requestId: subject.requestId };
  try {
    if (values.yes) await desk.trail.record({ action: 'erase', ...requestId }, work);
    else {
      // The list shows where a person is found.
      await desk.trail.revealed({ action: 'erase without --yes', ...requestId });
      await work();
    }
  } catch (error) {
    tally.stopped = true;
    if (tally.count > 0) report(call, tally, undefined);
    throw error;
  }
  report(call, tally, await alikeOf(subject, call, tally));
  if (tally.stopped) return EXIT.stopped;
  return tally.count === 0 || tally.left ? EXIT.found : EXIT.ok;
}

function report({ out, values }: Call, tally: Tally, alike: Alike | undefined): void {
  const { count, listed, stopped } = tally;
  if (values.json) {
    out.json({
      dry_run: !values.yes,
      count,
      listed,
      ...(alike === undefined ? {} : { [`${alike.same}_elsewhere`]: alike.requestIds }),
      ...(stopped ? { stopped } : {}),
    });
  } else {
    const rows = listed.map(({ what, id, state, result }) =>
      [what, id, state, result].map(printable),
    );
    if (rows.length > 0) out.line(table(rows, ''));
    if (count > listed.length) out.line(`… and ${count - listed.length} more`);
    if (count === 0) out.line('nothing holds this applicant');
    else if (!values.yes)
      out.line(`${count} found; nothing was changed; add --yes to erase. This cannot be undone.`);
    else
      out.line(
        `${count} done; backups still hold them until they are past their own retention (docs/privacy.md)`,
      );
  }
  if (tally.left) {
    out.note(
      'some changed meanwhile or are being worked on: run it again in a minute; retry or close dead letters first',
    );
  }
  const { same, requestIds = [] } = alike ?? {};
  if (requestIds.length > 0) {
    out.note(
      `not erased, but of the same ${same === 'ein' ? 'EIN' : 'e-mail address'}: ${requestIds.join(', ')}${requestIds.length < ALIKE_LISTED ? '' : ', and perhaps more'}: ` +
        `if they are the same person, erase them by --${same} or by their ids`,
    );
  }
  if (stopped) out.note('stopped: what was done stays done; give the same command again');
}

async function subjectOf(call: Call): Promise<Subject> {
  const [id] = call.positionals;
  const { email, ein } = call.values;
  if ([id, email, ein].filter((given) => given !== undefined).length !== 1) {
    throw new UsageError('erase: give one of REQUEST_ID, --email or --ein');
  }
  if (id === undefined) {
    return {
      person: defined({ email, ein }),
    };
  }
  const record = await submissionById(id, call.desk, call.clock.now());
  // A worker that held the body may have created the account since.
  const late =
    record.erasedAt === undefined
      ? undefined
      : await call.desk.accounts.find('requestId', record._id);
  if (record.erasedAt !== undefined && late === undefined)
    throw new CommandError(`${record._id} was erased before`);
  // Only the address identifies the person, because a mistyped EIN may be another's.
  const own = late?.emailNormalized ?? applicantOf(record).email;
  // A value such as "none" may stand in requests of many people.
  const person = own === undefined || !isEmailAddress(own) ? {} : { email: own };
  return { person, requestId: record._id };
}

/** Erases what the indexes find. */
async function eraseKnown(subject: Subject, call: Call, tally: Tally): Promise<void> {
  const { person, requestId } = subject;
  const { desk } = call;
  for await (const page of desk.submissions.ofApplicant(person)) {
    const others = page.filter(({ _id }) => _id !== requestId);
    await eraseOwn(others, subject, call, tally);
  }
  const accounts = [
    ...(await desk.accounts.ofPerson(person, new Set())),
    ...(await desk.accounts.released()),
  ];
  await eraseAccounts(
    accounts.filter((account) => isAccountOf(person, account) && account.requestId !== requestId),
    subject,
    call,
    tally,
  );
}

/** The named request comes last, because without it a repeat could not find the rest. */
async function eraseNamed(subject: Subject, call: Call, tally: Tally): Promise<void> {
  const { requestId } = subject;
  const { desk, values } = call;
  if (requestId === undefined || tally.stopped) return;
  const record = await desk.submissions.byId(requestId);
  if (values.yes && tally.left) {
    tally.note({
      what: 'request',
      id: requestId,
      state: record?.state ?? 'past retention',
      result: 'comes last',
    });
    return;
  }
  if (record !== undefined) await eraseOwn([record], subject, call, tally);
  // The record may have expired while its account remains.
  else {
    const accounts = await desk.accounts.ofPerson({}, new Set([requestId]));
    await eraseAccounts(accounts, subject, call, tally);
  }
}

/** Reads every kept body, because a person may appear in one whose fields are unknown. */
async function walkBodies(subject: Subject, call: Call, tally: Tally): Promise<void> {
  const { person, requestId } = subject;
  const { desk, values, out, clock, stop } = call;
  const progress = new Progress(out, clock, await desk.submissions.about());
  for await (const page of desk.submissions.personalPages()) {
    const own: PersonalRecord[] = [];
    for (const record of page.filter(({ _id }) => !tally.settled.has(_id) && _id !== requestId)) {
      const relation = relationOf(person, record);
      if (relation === 'applicant') own.push(record);
      if (relation === 'mentioned') tally.note(await eraseRecord(record, true, desk, values.yes));
    }
    await eraseOwn(own, subject, call, tally);
    progress.add(page.length);
    if (stop.aborted) {
      tally.stopped = true;
      return;
    }
  }
}

/** Accounts come after their records, so that no worker still has a claim to create one. */
async function eraseOwn(
  records: readonly PersonalRecord[],
  subject: Subject,
  call: Call,
  tally: Tally,
): Promise<void> {
  if (records.length === 0) return;
  const { desk, values } = call;
  for (const record of records) {
    if (tally.settled.has(record._id)) continue;
    tally.others.add(otherHalf(subject, applicantOf(record)));
    tally.note(await eraseRecord(record, false, desk, values.yes));
  }
  const ids = new Set(records.map(({ _id }) => _id));
  const accounts = await desk.accounts.ofPerson({}, ids);
  await eraseAccounts(
    accounts.filter(
      (account) => isAccountOf(subject.person, account) || account.requestId === subject.requestId,
    ),
    subject,
    call,
    tally,
  );
}

/** A worker may claim the request between read and write, so it is read again a few times. */
async function eraseRecord(
  record: PersonalRecord,
  bodyOnly: boolean,
  desk: Desk,
  yes: boolean,
  triesLeft = REOPEN_TRIES,
): Promise<Found> {
  const entry = { what: 'request', id: record._id, state: record.state };
  // Another applicant's request still needs its body, even as a dead letter.
  if (bodyOnly && (isOpen(record.state) || record.state === 'dead_lettered'))
    return { ...entry, result: 'still open' };
  if (!yes) return { ...entry, result: bodyOnly ? 'body would be erased' : 'would be erased' };
  const done = bodyOnly
    ? await desk.moves.eraseBody(record)
    : await desk.moves.erase(record, `operator erase by ${desk.trail.by}`);
  if (done) return { ...entry, result: bodyOnly ? 'body erased' : 'erased' };
  const now = triesLeft > 1 ? await desk.submissions.byId(record._id) : undefined;
  if (now === undefined) return { ...entry, result: 'changed' };
  return eraseRecord(now, bodyOnly, desk, yes, triesLeft - 1);
}

async function eraseAccounts(
  accounts: readonly Account[],
  subject: Subject,
  { desk, values }: Call,
  tally: Tally,
): Promise<void> {
  for (const account of accounts) {
    if (tally.settled.has(account._id)) continue;
    const { email, ein } = account.released ?? account;
    tally.others.add(otherHalf(subject, { email: normalizeEmail(email), ein }));
    if (values.yes) await desk.corrections.erase(account._id);
    tally.note({
      what: 'account',
      id: account._id,
      state: account.releasedAt === undefined ? 'in use' : 'released',
      result: values.yes ? 'erased' : 'would be erased',
    });
  }
}
