/** Plays faults in turn under load, waits until every record is final, and runs the audit. */
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Db, Filter } from 'mongodb';
import { ACCOUNTS, type Account } from '../../internal/account/account.ts';
import { isOpen, openStates, type State } from '../../internal/submission/states.ts';
import { SUBMISSIONS, type SubmissionRecord } from '../../internal/submission/submission.ts';
import { audit, type AuditResult } from './audit.ts';
import type { Fault } from './fault.ts';
import { startFollower } from './follower.ts';
import { hurryMails } from './mail.ts';
import { startLoad, type Load } from './load.ts';
import type { Ledger } from './ledger.ts';
import { newRandom, type Random } from '../support/random.ts';
import { openChaosWorld, type ChaosWorld } from './world.ts';

export interface ChaosOptions {
  readonly seed: number;
  readonly faults: readonly Fault[];
  readonly secondsPerFault: number;
  /** When the load stops until all is final: after each fault, or once at the end. */
  readonly settle: 'each' | 'end';
  readonly perSecond?: number;
  /** Settings of PostgreSQL that make a control run lose records. */
  readonly postgresql?: readonly string[];
  readonly signal: AbortSignal;
  readonly watch?: (world: ChaosWorld, folder: string) => Promise<Watch>;
  readonly log: (line: string) => void;
}

export interface ChaosResult {
  readonly seed: number;
  readonly stores: string;
  readonly audit: AuditResult;
  readonly phases: readonly PhaseTimes[];
  readonly kills: Readonly<Record<string, number>>;
  /** Unexpected events beside the audit. */
  readonly troubles: readonly string[];
  readonly ledgerFile: string;
}

interface PhaseTimes {
  readonly fault: string;
  readonly injections: number;
  /** From the end of the fault until the first later request was final. */
  readonly goesOnMs: number | undefined;
  /** From the end of the fault until the last request of its time was final. */
  readonly settleMs: number | undefined;
}

export const CHAOS_FOLDER = fileURLToPath(new URL('../../.run/chaos/', import.meta.url));

const DEFAULT_PER_SECOND = 60;
/** Without progress: twice the 45 s of a claim and the time of reconcile. */
const SETTLE_TIMEOUT_MS = 150_000;
const SETTLE_POLL_MS = 200;
/** What is asked costs as much as many are open. */
const SETTLE_POLL_MOST_MS = 2_000;
const MOVING = 'to another Redis';
/** How long the load runs before and after each fault. */
const MARGIN_MS = 500;
/** Longer times do not appear in the report. */
const GOES_ON_WITHIN_MS = 60_000;
const MS_PER_SECOND = 1_000;
/** A repeated fault is reported after this number of injections. */
const INJECTIONS_TOLD = 10;

/** States that a processor's work leads to. */
const WORKED_OFF: ReadonlySet<State> = new Set(['completed', 'rejected', 'undeliverable']);

interface Phase {
  readonly fault: string;
  injections: number;
  healedAt: number;
}

export async function runChaos(options: ChaosOptions): Promise<ChaosResult> {
  const { signal } = options;
  // One sequence for each purpose, so that the timing of one does not change the plan of another.
  const randomOf = (part: number): Random => newRandom(options.seed * 4 + part);
  const [bodies, choices, delays] = [randomOf(1), randomOf(2), randomOf(3)];
  const folder = join(CHAOS_FOLDER, `seed-${options.seed}-${process.pid}`);
  let phase = 'before';
  const world = await openChaosWorld({
    folder,
    random: delays,
    onPowerDisks: options.faults.some(({ onPowerDisks }) => onPowerDisks),
    postgresql: options.postgresql ?? [],
    signal,
    log: options.log,
  });
  const follower = startFollower({ key: world.keys.good, targets: () => world.targets() });
  try {
    const load = startLoad({
      file: join(folder, 'ledger.jsonl'),
      random: bodies,
      extensions: true,
      keys: world.keys,
      targets: () => world.targets(),
      phase: () => phase,
      perSecond: options.perSecond ?? DEFAULT_PER_SECOND,
    });
    const phases: Phase[] = [];
    let watch: Watch | undefined;
    try {
      watch = await options.watch?.(world, folder);
      await world.pause(MARGIN_MS);
      for (const fault of options.faults) {
        if (signal.aborted) break;
        phase = MOVING;
        await world.useRedis(fault.redis);
        phase = fault.name;
        await fault.prepare?.(world);
        const course =
          (await watch?.begin(fault)) ?? forSeconds(world, fault, options.secondsPerFault);
        options.log(`${fault.name}: ${fault.about}`);
        const ended = await playFault(fault, { world, course, random: choices, log: options.log });
        phases.push(ended);
        await world.pause(MARGIN_MS);
        await untilItGoesOn(world, ended.healedAt, signal);
        if (options.settle === 'each') await settle(world, load, options);
      }
    } finally {
      await load.stop();
      await watch?.close();
    }
    await settle(world, load, options);
    await follower.catchUp();
    await follower.stop();
    world.facts.troubles.push(...follower.troubles);
    const followed = follower.states;
    return await judge(world, { ledger: load.ledger, followed, phases, options });
  } finally {
    await follower.stop();
    await world.close();
  }
}

/** Decides how long each fault lasts. */
export interface Course {
  during(milliseconds: number): Promise<void>;
  goesOn(): boolean;
  ended?(): Promise<void>;
}

export interface Watch {
  begin(fault: Fault): Promise<Course>;
  close(): Promise<void>;
}

function forSeconds(world: ChaosWorld, fault: Fault, seconds: number): Course {
  const lastsMs = Math.max(seconds * MS_PER_SECOND, fault.leastMs ?? 0);
  const endsAt = performance.now() + lastsMs;
  return {
    during: (milliseconds) => world.pause(Math.min(milliseconds, lastsMs)),
    goesOn: () =>
      !world.signal.aborted && (fault.times !== undefined || performance.now() < endsAt),
  };
}

async function playFault(
  fault: Fault,
  {
    world,
    course,
    random,
    log,
  }: {
    readonly world: ChaosWorld;
    readonly course: Course;
    readonly random: Random;
    readonly log: ChaosOptions['log'];
  },
): Promise<Phase> {
  let [injections, healedAt] = [0, 0];
  do {
    injections += 1;
    try {
      await fault.inject(world, random);
      await course.during(fault.rhythm?.onMs ?? Infinity);
    } finally {
      await fault.heal(world);
      healedAt = Date.now();
    }
    await fault.tidy?.(world);
    world.facts.collectMails();
    if (injections % INJECTIONS_TOLD === 0 && fault.times !== undefined)
      log(`  ${injections} of ${fault.times} times`);
    await course.during(fault.rhythm?.offMs ?? 0);
  } while (course.goesOn() && (fault.times === undefined || injections < fault.times));
  await course.ended?.();
  return { fault: fault.name, injections, healedAt };
}

/** Load continues during this wait. */
async function untilItGoesOn(world: ChaosWorld, since: number, signal: AbortSignal): Promise<void> {
  const deadline = performance.now() + GOES_ON_WITHIN_MS;
  const sentSince = { receivedAt: { $gte: new Date(since) }, state: { $in: [...WORKED_OFF] } };
  while (performance.now() < deadline && !signal.aborted) {
    const worked = await requestsOf(world.db)
      .findOne(sentSince)
      .catch(() => null);
    if (worked !== null) return;
    await world.pause(SETTLE_POLL_MS);
  }
}

/** Stops the load until no record is open and no withdrawal is pending. */
export async function settle(
  world: ChaosWorld,
  load: Load,
  options: Pick<ChaosOptions, 'signal' | 'log'> & {
    /** The records to wait for; all if it is absent. */
    readonly among?: Filter<SubmissionRecord>;
  },
): Promise<void> {
  const startedAt = performance.now();
  await load.pause();
  // Each record that becomes final extends the deadline, because a busy machine is slow.
  let deadline = startedAt + SETTLE_TIMEOUT_MS;
  let [fewest, last] = [Infinity, ''];
  do {
    const [open, pending] = await Promise.all([
      requestsOf(world.db).countDocuments({ state: { $in: [...openStates] }, ...options.among }),
      world.ingestMetric('partner_ingest_withdrawals_pending'),
    ]).catch(() => [Number.NaN, Number.NaN] as const);
    world.facts.collectMails();
    await hurryMails(world).catch(() => undefined);
    if (open === 0 && pending === 0) break;
    last = `${open} records open, ${pending} withdrawals pending`;
    if (open + pending < fewest) {
      fewest = open + pending;
      deadline = performance.now() + SETTLE_TIMEOUT_MS;
    }
    await world.pause(Math.min(SETTLE_POLL_MS + (open || 0), SETTLE_POLL_MOST_MS));
  } while (performance.now() < deadline && !options.signal.aborted);
  const seconds = ((performance.now() - startedAt) / 1_000).toFixed(1);
  options.log(
    performance.now() < deadline
      ? `  settled in ${seconds} s`
      : `  not settled after ${seconds} s: ${last}`,
  );
  load.resume();
}

function requestsOf(db: Db) {
  return db.collection<SubmissionRecord>(SUBMISSIONS);
}

async function judge(
  world: ChaosWorld,
  run: {
    readonly ledger: Ledger;
    readonly followed: ReadonlyMap<string, string>;
    readonly phases: readonly Phase[];
    readonly options: ChaosOptions;
  },
): Promise<ChaosResult> {
  const records = await requestsOf(world.db).find().toArray();
  const accounts = await world.db.collection<Account>(ACCOUNTS).find().toArray();
  run.ledger.read(records);
  const { facts } = world;
  facts.collectMails();
  const { entries } = run.ledger;
  const allows = new Set(run.options.faults.flatMap((fault) => fault.allows ?? []));
  const phaseOf = new Map(entries.map((entry) => [entry.answer?.xRequestId, entry.phase]));
  const extensions = { receiptKeys: world.receiptKeys, followed: run.followed };
  return {
    seed: run.options.seed,
    stores: `${world.mongo.description}, ${world.redis.description}`,
    audit: audit({
      ledger: entries,
      records,
      accounts,
      mails: facts.mails,
      facts,
      allows,
      extensions,
    }),
    phases: run.phases.map(({ fault, injections, healedAt }) => {
      const own = records.filter(({ _id }) => phaseOf.get(_id) === fault);
      return { fault, injections, ...timesOf(own, healedAt) };
    }),
    kills: Object.fromEntries(facts.kills),
    troubles: facts.troubles,
    ledgerFile: run.ledger.file,
  };
}

function timesOf(records: readonly SubmissionRecord[], healedAt: number) {
  const since = records
    .filter(({ receivedAt, state }) => receivedAt.getTime() >= healedAt && WORKED_OFF.has(state))
    .map(({ stateAt }) => stateAt.getTime() - healedAt);
  const all = records.map(({ stateAt }) => stateAt.getTime() - healedAt);
  return {
    goesOnMs: since.length === 0 ? undefined : Math.min(...since),
    settleMs: records.some(({ state }) => isOpen(state)) ? undefined : Math.max(0, ...all),
  };
}
