/** `erase`: removes one applicant's personal data from records, raw bodies and accounts. */
import { defined } from '../platform/defined.ts';
import { printable, table } from '../platform/terminal.ts';
import { isEmailAddress } from '../application/email-address.ts';
import type { Person } from '../application/find-person.ts';
import { claimEnd } from '../view/plans.ts';
import { isOpen } from '../submission/states.ts';
import type { Account } from '../account/account.ts';
import type { PersonalRecord } from '../submission/support-queries.ts';
import {
  CommandError,
  EXIT,
  submissionById,
  type Call,
  type Command,
  type ExitCode,
} from './command.ts';
import { UsageError, maybeRequestId } from './options.ts';
import { ALIKE_LISTED, CHANGES_LISTED, REOPEN_TRIES } from './limits.ts';
import { alikeOf, otherHalf, type Alike } from './left-after-erasure.ts';
import { normalizeEmail } from '../application/identity.ts';
import { applicantOf, isAccountOf, relationOf } from './match-person.ts';
import { assertNamed } from './order.ts';
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

interface Found {
  readonly what: string;
  readonly id: string;
  readonly state: string;
  readonly result: string;
}

/** Everything else is left, and the command says so. */
const DONE = ['erased', 'would be erased', 'body erased', 'body would be erased'];

interface Work {
  readonly call: Call;
  readonly person: Person;
  /** The request that named the person. */
  readonly named: string | undefined;
  readonly tally: Tally;
}

class Tally {
  readonly listed: Found[] = [];
  readonly looked = new Set<string>();
  readonly gone = new Set<string>();
  count = 0;
  done = 0;
  left = false;
  /** EINs found by address, or addresses found by EIN. */
  readonly others = new Set<string>();
  stopped = false;

  note(entry: Found): void {
    this.count += 1;
    this.looked.add(entry.id);
    if (this.listed.length < CHANGES_LISTED) this.listed.push(entry);
    if (!DONE.includes(entry.result)) {
      this.left = true;
      return;
    }
    this.done += 1;
    if (!entry.result.startsWith('body')) this.gone.add(entry.id);
  }
}

async function eraseApplicant(call: Call): Promise<ExitCode> {
  const { values } = call;
  const tally = new Tally();
  const work: Work = { call, tally, ...(await subjectOf(call)) };
  const { desk } = call;
  const all = async (): Promise<number> => {
    await eraseKnown(work);
    await walkBodies(work);
    await eraseNamed(work);
    return tally.count;
  };
  const about = defined({ requestId: work.named });
  try {
    if (values.yes) await desk.trail.record({ action: 'erase', ...about }, all);
    else {
      // The list shows where a person is found.
      await desk.trail.revealed({ action: 'erase without --yes', ...about });
      await all();
    }
  } catch (error) {
    tally.stopped = true;
    if (tally.count > 0) report(work, undefined);
    throw error;
  }
  report(work, await alikeOf(work, desk, tally));
  if (tally.stopped) return EXIT.stopped;
  return tally.count === 0 || tally.left ? EXIT.found : EXIT.ok;
}

function report({ call, tally }: Work, alike: Alike | undefined): void {
  const { out, values } = call;
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
        `${tally.done} done; backups still hold them until they are past their own retention (docs/privacy.md)`,
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

async function subjectOf(call: Call): Promise<Pick<Work, 'person' | 'named'>> {
  const [id] = call.positionals;
  const { email, ein } = call.values;
  if ([id, email, ein].filter((given) => given !== undefined).length !== 1) {
    throw new UsageError('erase: give one of REQUEST_ID, --email or --ein');
  }
  if (call.values.yes) assertNamed(call, 'erase');
  if (id === undefined) return { person: defined({ email, ein }), named: undefined };
  const record = await submissionById(id, call.desk, call.clock.now());
  const account = await call.desk.accounts.find('requestId', record._id);
  if (record.erasedAt !== undefined && account === undefined)
    throw new CommandError(`${record._id} was erased before`);
  // Only the address identifies the person, because a mistyped EIN may be another's.
  const own = record.erasedAt === undefined ? applicantOf(record).email : account?.emailNormalized;
  // A value such as "none" may stand in requests of many people.
  const person = own === undefined || !isEmailAddress(own) ? {} : { email: own };
  return { person, named: record._id };
}

/** Erases what the indexes find. */
async function eraseKnown(work: Work): Promise<void> {
  const { person, named, tally } = work;
  const { submissions, accounts } = work.call.desk;
  for await (const page of submissions.ofApplicant(person))
    await eraseOwn(
      page.filter(({ _id }) => _id !== named),
      work,
    );
  const found = [...(await accounts.ofPerson(person, new Set())), ...(await accounts.released())];
  for (const account of found) {
    const { requestId } = account;
    if (!isAccountOf(person, account) || requestId === named || tally.looked.has(requestId))
      continue;
    const record = await submissions.byId(requestId);
    if (record === undefined) await eraseAccounts([account], work);
    else await eraseOwn([record], work);
  }
}

/** The named request comes last, because without it a repeat could not find the rest. */
async function eraseNamed(work: Work): Promise<void> {
  const { named, tally, call } = work;
  const { desk, values } = call;
  if (named === undefined || tally.stopped) return;
  const record = await desk.submissions.byId(named);
  if (values.yes && tally.left) {
    const state = record?.state ?? 'past retention';
    tally.note({ what: 'request', id: named, state, result: 'comes last' });
  } else if (record !== undefined) await eraseOwn([record], work);
  // The record may have expired while its account remains.
  else await eraseAccounts(await desk.accounts.ofPerson({}, new Set([named])), work);
}

/** Reads every kept body, because a person may appear in one whose fields are unknown. */
async function walkBodies(work: Work): Promise<void> {
  const { person, named, tally } = work;
  const { desk, out, clock, stop } = work.call;
  const progress = new Progress(out, clock, await desk.submissions.about());
  for await (const page of desk.submissions.personalPages()) {
    const own: PersonalRecord[] = [];
    for (const record of page.filter(({ _id }) => !tally.looked.has(_id) && _id !== named)) {
      const relation = relationOf(person, record);
      if (relation === 'applicant') own.push(record);
      if (relation === 'mentioned') tally.note(await eraseBody(record, work.call));
    }
    await eraseOwn(own, work);
    progress.add(page.length);
    if (stop.aborted) {
      tally.stopped = true;
      return;
    }
  }
}

/** An account goes after its request, and stays while a worker may create it again. */
async function eraseOwn(records: readonly PersonalRecord[], work: Work): Promise<void> {
  const { tally, person, named, call } = work;
  const found = records.filter(({ _id }) => !tally.looked.has(_id));
  for (const record of found) {
    tally.others.add(otherHalf(person, applicantOf(record)));
    tally.note(await eraseRecord(record, call));
  }
  const ids = new Set(found.map(({ _id }) => _id).filter((id) => tally.gone.has(id)));
  if (ids.size === 0) return;
  const accounts = await call.desk.accounts.ofPerson({}, ids);
  await eraseAccounts(
    accounts.filter((account) => isAccountOf(person, account) || account.requestId === named),
    work,
  );
}

/** Others may move the request between read and write, so it is read again a few times. */
async function eraseRecord(
  record: PersonalRecord,
  call: Call,
  triesLeft = REOPEN_TRIES,
): Promise<Found> {
  const { desk, values, clock } = call;
  const entry = { what: 'request', id: record._id, state: record.state };
  if (!values.yes) return { ...entry, result: 'would be erased' };
  // The worker may be creating the account, with all that is to be erased.
  if (claimEnd(record, clock.now()) !== undefined) return { ...entry, result: 'being worked on' };
  if (await desk.moves.move('erase', { seen: record }, `operator erase by ${desk.trail.by}`))
    return { ...entry, result: 'erased' };
  const now = triesLeft > 1 ? await desk.submissions.byId(record._id) : undefined;
  return now === undefined
    ? { ...entry, result: 'changed' }
    : eraseRecord(now, call, triesLeft - 1);
}

/** Another applicant's request still needs its body, even as a dead letter. */
async function eraseBody(record: PersonalRecord, { desk, values }: Call): Promise<Found> {
  const { _id: id, state } = record;
  const entry = { what: 'request', id, state };
  if (isOpen(state) || state === 'dead_lettered') return { ...entry, result: 'still open' };
  if (!values.yes) return { ...entry, result: 'body would be erased' };
  const done = await desk.moves.eraseBody(record);
  return { ...entry, result: done ? 'body erased' : 'changed' };
}

async function eraseAccounts(accounts: readonly Account[], work: Work): Promise<void> {
  const { tally, person } = work;
  const { desk, values } = work.call;
  for (const account of accounts) {
    if (tally.looked.has(account._id)) continue;
    const { email, ein } = account.released ?? account;
    tally.others.add(otherHalf(person, { email: normalizeEmail(email), ein }));
    if (values.yes) await desk.corrections.erase(account._id);
    tally.note({
      what: 'account',
      id: account._id,
      state: account.releasedAt === undefined ? 'in use' : 'released',
      result: values.yes ? 'erased' : 'would be erased',
    });
  }
}
