/**
 * `make test-upgrade`: the version before makes all that the stores can hold; then ours takes its
 * place process by process under load, gives it back, and takes it again. Nothing is lost, no key is
 * answered 401, every process becomes ready. docs/upgrade.md promises it.
 */
import { mkdtemp, readFile, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs, styleText } from 'node:util';
import { ACCOUNTS, type Account } from '../../internal/account/account.ts';
import type { TrailEntry } from '../../internal/operators/trail/trail.ts';
import { OPERATOR_AUDIT } from '../../internal/self-audit/walk.ts';
import { SUBMISSIONS, type SubmissionRecord } from '../../internal/submission/submission.ts';
import { audit, type Violation } from '../faults/audit.ts';
import type { Ledger } from '../faults/ledger.ts';
import { startLoad } from '../faults/load.ts';
import { CHAOS_FOLDER, settle } from '../faults/play.ts';
import { openChaosWorld, type ChaosWorld } from '../faults/world.ts';
import { secondsLog } from '../support/flags.ts';
import { newRandom } from '../support/random.ts';
import { Desk, isMade, MAKER_AGENT, type Version } from './makers.ts';
import { baseVersion, breaks, todaysVersion, type Break } from './versions.ts';

const SEED = 51;
const PER_SECOND = 20;
/** The load until the next process is replaced, so that each version works on what the other began. */
const BETWEEN_MS = 3_000;
/** Two controllers, so that a lease changes hands while both versions ask for it. */
const SLOTS = (['controller', 'processor', 'ingest'] as const).flatMap((name) => [name, name]);
/** Log lines of a process that meets something it does not understand. */
const NOT_UNDERSTOOD = /a job without records was dropped/;
const PRINTED = 20;
/** Differences between the version before and ours that the changelog names. */
const KNOWN_DIFFERENCES: readonly RegExp[] = [];

const { values: flags } = parseArgs({ options: { break: { type: 'string', default: '' } } });
const stop = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stop.abort());
const log = secondsLog();

async function play(world: ChaosWorld, base: Version, today: Version, folder: string) {
  let phase = 'before';
  const load = startLoad({
    file: join(folder, 'ledger.jsonl'),
    random: newRandom(SEED),
    keys: world.keys,
    targets: () => world.targets(),
    phase: () => phase,
    perSecond: PER_SECOND,
  });
  const { ledger } = load;
  const [before, ours] = [base, today].map((version) => new Desk(world, load, version)) as [
    Desk,
    Desk,
  ];
  /** Audits once only the waiting requests are open. */
  const judge = async (): Promise<void> => {
    const among = { userAgent: { $ne: MAKER_AGENT } };
    const paused = { ...load, resume: () => undefined };
    await settle(world, paused, { signal: stop.signal, log, among });
    await throwIfBroken(world, ledger, folder);
    load.resume();
  };
  const rollTo = async (version: Version, name: string, desks: readonly Desk[]): Promise<void> => {
    phase = name;
    log(name);
    world.useVersion(version.folder);
    // On the way back the order is reversed, so that each part is first once and last once.
    for (const slot of version === today ? world.slots : world.slots.toReversed()) {
      await world.replace(slot);
      if (slot.name === 'controller') await before.addKey();
      await world.pause(BETWEEN_MS);
      for (const desk of desks) await desk.check();
    }
    await judge();
  };
  world.mail.setFault(({ rcptTo }) => {
    const recipient = rcptTo.at(-1);
    return before.faultOf(recipient) ?? ours.faultOf(recipient);
  });
  try {
    log('the version before makes everything');
    await before.makeAll();
    await judge();
    await throwIfDecidedOtherwise(ours);
    await rollTo(today, 'forward', [before]);
    log('ours makes everything');
    await ours.makeAll();
    await rollTo(base, 'back', [before, ours]);
    log('the version before goes on with what ours made');
    await ours.wake(base);
    await rollTo(today, 'forward again', [before, ours]);
    log('ours goes on with what the version before made');
    await before.wake(today);
    await judge();
    await before.command('audit');
    await throwIfDecidedOtherwise(ours);
    await throwIfTrailLacks(world, before.changes + ours.changes);
    return ledger.entries.length;
  } finally {
    await load.stop();
  }
}

async function throwIfBroken(world: ChaosWorld, ledger: Ledger, folder: string): Promise<void> {
  const { db, facts } = world;
  facts.collectMails();
  const records = await db
    .collection<SubmissionRecord>(SUBMISSIONS)
    .find({ userAgent: { $ne: MAKER_AGENT } })
    .toArray();
  const accounts = await db.collection<Account>(ACCOUNTS).find().toArray();
  const { violations } = audit({
    ledger: ledger.entries,
    records,
    accounts: accounts.filter(({ email }) => !isMade(email)),
    mails: facts.mails.filter(({ to }) => !isMade(to)),
    facts,
    allows: new Set(['overtaken']),
  });
  const found = [...violations.map(inWords), ...facts.troubles, ...(await notUnderstood(folder))];
  if (found.length > 0) throw new Error(found.slice(0, PRINTED).join('\n'));
}

const inWords = ({ kind, phase, id, words }: Violation): string =>
  `${kind} (${phase}) ${id}: ${words}`;

async function notUnderstood(folder: string): Promise<string[]> {
  const logs = (await readdir(folder)).filter((name) => name.endsWith('.log'));
  const texts = await Promise.all(logs.map((name) => readFile(join(folder, name), 'utf8')));
  return texts.flatMap((text) => text.split('\n').filter((line) => NOT_UNDERSTOOD.test(line)));
}

/** Both versions decide alike, except for what the changelog says. */
async function throwIfDecidedOtherwise(ours: Desk): Promise<void> {
  const found = await ours.rejudged();
  const unknown = found.filter((line) => !KNOWN_DIFFERENCES.some((known) => known.test(line)));
  if (unknown.length > 0) throw new Error(unknown.slice(0, PRINTED).join('\n'));
}

/** Throws if a command that changed something has no finished entry. */
async function throwIfTrailLacks({ db }: ChaosWorld, changes: number): Promise<void> {
  const trail = db.collection<TrailEntry>(OPERATOR_AUDIT);
  const [begun, ended] = await Promise.all(
    [{ result: 'begun' as const }, { ends: { $exists: true } }].map((of) =>
      trail.countDocuments(of),
    ),
  );
  if (begun !== ended || (begun ?? 0) < changes)
    throw new Error(`of ${changes} changes the trail has ${begun}, and the end of ${ended}`);
}

async function run(broken: Break | undefined): Promise<number> {
  const parent = await mkdtemp(join(tmpdir(), 'upgrade-'));
  const folder = join(CHAOS_FOLDER, `upgrade-${process.pid}`);
  try {
    const [base, today] = [await baseVersion(parent), await todaysVersion(parent, broken)];
    const world = await openChaosWorld({
      folder,
      random: newRandom(SEED),
      onPowerDisks: false,
      postgresql: [],
      project: base.folder,
      slots: SLOTS,
      signal: stop.signal,
      log,
    });
    try {
      return await play(world, base, today, folder);
    } finally {
      await world.close();
    }
  } finally {
    await rm(parent, { recursive: true });
  }
}

/** Resolves to true if nothing is lost, or if a deliberate break was found. */
async function main(): Promise<boolean> {
  const broken = breaks[flags.break];
  if (flags.break !== '' && broken === undefined)
    throw new Error(`BREAK must be ${Object.keys(breaks).join(', ')}`);
  try {
    const requests = await run(broken);
    const words = `forward, back and forward again: ${requests} requests, every promise kept`;
    console.log(styleText(broken === undefined ? 'green' : 'red', words));
    return broken === undefined;
  } catch (error) {
    const causes = error instanceof Error ? [error.message, error.cause ?? ''] : [error];
    const words = causes.map(String).join('\n').trim();
    const isFound = broken !== undefined && new RegExp(broken.found).test(words);
    console.log(styleText(isFound ? 'green' : 'red', `${isFound ? 'found: ' : ''}${words}`));
    return isFound;
  }
}

process.exitCode = (await main()) ? 0 : 1;
