/**
 * `make chaos ACKS=1000000 KILLS=1000`: random kills until that number of requests was answered
 * 202. Runs in legs to bound memory. Each leg has its own applicants and is audited twice: when all
 * is final, and at the end from its files, because a later fault could lose its records.
 */
import { createReadStream, existsSync } from 'node:fs';
import { appendFile, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { ACCOUNTS, type Account } from '../../internal/account/account.ts';
import { firstIdAt } from '../../internal/platform/stores/ids.ts';
import { duration } from '../../internal/operators/view/terminal.ts';
import { SUBMISSIONS, type SubmissionRecord } from '../../internal/submission/submission.ts';
import { newRandom } from '../support/random.ts';
import { audit, type AuditResult } from './audit.ts';
import type { SentMail } from './facts.ts';
import type { Fault } from './fault.ts';
import type { LedgerEntry } from './ledger.ts';
import { startLoad } from './load.ts';
import { CHAOS_FOLDER, settle } from './play.ts';
import { randomKills } from './processes.ts';
import { openChaosWorld, type ChaosWorld } from './world.ts';

export interface MarathonOptions {
  readonly seed: number;
  readonly acks: number;
  readonly kills: number;
  readonly cuts: number;
  /** Undefined if this machine cannot have power cuts. */
  readonly powerCut: Fault | undefined;
  readonly signal: AbortSignal;
  readonly log: (line: string) => void;
}

interface Leg {
  readonly number: number;
  readonly world: number;
  readonly acks: number;
  readonly requests: number;
  readonly kills: number;
  readonly cuts: number;
  readonly violations: readonly string[];
  readonly windows: number;
  readonly seconds: number;
  /** Times of its first and last request, in milliseconds of Unix time. */
  readonly from: number;
  readonly to: number;
}

const LEG_ACKS = 5_000;
const PER_SECOND = 400;
/** The range of numbers of one leg. */
const LEG_RANGE = 100_000;
const VIOLATIONS_KEPT = 20;
const CLOCK_SLACK_MS = 1_000;
/** With 0 of n events the rate is at most 3 / n at a confidence of 95 %. */
const RULE_OF_THREE = 3;
const NOT_PLAYED = [
  'partitions between machines, and several machines at all',
  'MongoDB itself, where the stores below name another',
  'disks that return other bytes than were synced',
  'more than one version of the service at a time',
];

/** Resolves to true if nothing is lost and the number was reached. */
export async function runMarathon(options: MarathonOptions): Promise<boolean> {
  const { seed, signal, log } = options;
  const folder = join(CHAOS_FOLDER, `marathon-${seed}`);
  await mkdir(folder, { recursive: true });
  const legsFile = join(folder, 'legs.jsonl');
  const legs = await readLegs(legsFile);
  if (legs.length > 0)
    log(`goes on behind leg ${legs.length}: ${acksOf(legs)} acknowledged so far`);
  const number = Math.max(0, ...legs.map(({ world }) => world)) + 1;
  const world = await openChaosWorld({
    folder: join(folder, `world-${number}`),
    random: newRandom(seed + number),
    onPowerDisks: options.powerCut !== undefined && options.cuts > 0,
    postgresql: [],
    signal,
    log,
  });
  const startedAt = performance.now();
  let stores = '';
  try {
    stores = `${world.mongo.description}, ${world.redis.description}`;
    const before = acksOf(legs);
    while (acksOf(legs) < options.acks && !signal.aborted) {
      const leg = await playLeg(world, folder, { number: legs.length + 1, world: number }, options);
      if (signal.aborted) break;
      legs.push(leg);
      await appendFile(legsFile, `${JSON.stringify(leg)}\n`);
      const done = acksOf(legs);
      const leftMs =
        ((performance.now() - startedAt) / (done - before)) * Math.max(0, options.acks - done);
      log(
        `leg ${leg.number}: ${done} of ${options.acks} acknowledged, ${leg.violations.length} violations, about ${duration(leftMs)} left`,
      );
    }
    for (const leg of legs.filter((one) => one.world === number)) {
      const again = await auditLeg(world, folder, leg, options);
      if (again.violations.length > 0)
        legs[leg.number - 1] = { ...leg, violations: wordsOf(again) };
    }
  } finally {
    await world.close();
    await rm(join(folder, `world-${number}`), { recursive: true, force: true });
  }
  const page = pageOf(legs, stores, options);
  const pageFile = join(folder, 'result.md');
  await writeFile(pageFile, page);
  console.log(`${page}\n${pageFile}`);
  return acksOf(legs) >= options.acks && legs.every(({ violations }) => violations.length === 0);
}

async function playLeg(
  world: ChaosWorld,
  folder: string,
  { number, world: worldNumber }: { readonly number: number; readonly world: number },
  options: MarathonOptions,
): Promise<Leg> {
  const { signal, seed } = options;
  const random = newRandom(seed * LEG_RANGE + number);
  const startedAt = performance.now();
  const from = Date.now() - CLOCK_SLACK_MS;
  const legs = Math.ceil(options.acks / LEG_ACKS);
  const share = (all: number): number =>
    Math.floor((all * number) / legs) - Math.floor((all * (number - 1)) / legs);
  const [kills, cuts] = [
    share(options.kills),
    options.powerCut === undefined ? 0 : share(options.cuts),
  ];
  world.facts.forgetMails();
  const load = startLoad({
    file: ledgerOf(folder, number),
    random,
    first: number * LEG_RANGE,
    keys: world.keys,
    targets: () => world.targets(),
    phase: () => `leg ${number}`,
    perSecond: PER_SECOND,
  });
  const { ledger } = load;
  const acknowledged = (): number =>
    ledger.entries.reduce((sum, { answer }) => sum + (answer?.status === 202 ? 1 : 0), 0);
  const faults = [
    ...Array<Fault>(kills).fill(randomKills(kills)),
    ...(options.powerCut === undefined ? [] : Array<Fault>(cuts).fill(options.powerCut)),
  ];
  try {
    for (const fault of random.shuffled(faults)) {
      if (signal.aborted) break;
      try {
        await fault.inject(world, random);
      } finally {
        await fault.heal(world);
      }
      world.facts.collectMails();
    }
    while (acknowledged() < LEG_ACKS && !signal.aborted) {
      await world.pause(200);
      world.facts.collectMails();
    }
    await settle(world, load, { signal, log: () => undefined });
  } finally {
    await load.stop();
  }
  world.facts.collectMails();
  await writeFile(mailsOf(folder, number), JSON.stringify(world.facts.mails));
  const leg: Leg = {
    number,
    world: worldNumber,
    acks: acknowledged(),
    requests: ledger.entries.length,
    kills,
    cuts,
    violations: [],
    windows: 0,
    seconds: (performance.now() - startedAt) / 1_000,
    from,
    to: Date.now() + CLOCK_SLACK_MS,
  };
  const result = await auditLeg(world, folder, leg, options);
  const troubles = world.facts.troubles.splice(0);
  return {
    ...leg,
    violations: [...wordsOf(result), ...troubles].slice(0, VIOLATIONS_KEPT),
    windows: result.windows.length,
  };
}

/** Audits a leg from its files and the database. */
async function auditLeg(
  world: ChaosWorld,
  folder: string,
  { number, from, to }: Leg,
  { powerCut }: MarathonOptions,
): Promise<AuditResult> {
  const [first, last] = [firstIdAt('req', new Date(from)), firstIdAt('req', new Date(to))];
  const range = { $gte: first, $lt: last };
  const records = world.db.collection<SubmissionRecord>(SUBMISSIONS).find({ _id: range });
  const accounts = world.db.collection<Account>(ACCOUNTS).find({ requestId: range });
  return audit({
    ledger: await readLedger(ledgerOf(folder, number)),
    records: await records.toArray(),
    accounts: await accounts.toArray(),
    mails: JSON.parse(await readFile(mailsOf(folder, number), 'utf8')) as SentMail[],
    facts: world.facts,
    allows: new Set([...(randomKills(0).allows ?? []), ...(powerCut?.allows ?? [])]),
  });
}

const ledgerOf = (folder: string, leg: number): string => join(folder, `leg-${leg}.jsonl`);
const mailsOf = (folder: string, leg: number): string => join(folder, `leg-${leg}.mails.json`);
const wordsOf = ({ violations }: AuditResult): string[] =>
  violations.slice(0, VIOLATIONS_KEPT).map(({ kind, id, words }) => `${kind} ${id}: ${words}`);
const acksOf = (legs: readonly Leg[]): number => legs.reduce((sum, { acks }) => sum + acks, 0);

async function readLegs(file: string): Promise<Leg[]> {
  if (!existsSync(file)) return [];
  const lines = (await readFile(file, 'utf8')).split('\n').filter(Boolean);
  return lines.map((line) => JSON.parse(line) as Leg);
}

async function readLedger(file: string): Promise<LedgerEntry[]> {
  const entries = new Map<number, LedgerEntry>();
  for await (const line of createInterface({ input: createReadStream(file) })) {
    const { body, ...rest } = JSON.parse(line) as Omit<LedgerEntry, 'body'> & { body?: string };
    const known = entries.get(rest.n);
    if (body === undefined) Object.assign(known!, rest);
    else entries.set(rest.n, { ...rest, body: Buffer.from(body, 'base64') });
  }
  return [...entries.values()];
}

function pageOf(legs: readonly Leg[], stores: string, options: MarathonOptions): string {
  const sum = (of: (leg: Leg) => number): number => legs.reduce((all, leg) => all + of(leg), 0);
  const acks = acksOf(legs);
  const broken = legs.flatMap(({ violations }) => violations);
  const atMost = ((RULE_OF_THREE / acks) * 1e6).toFixed(1);
  return [
    `# ${acks} acknowledged requests under ${sum((leg) => leg.kills)} kills`,
    '',
    `Seed ${options.seed}; ${stores}; ${legs.length} legs in ${duration(sum((leg) => leg.seconds) * 1_000)}.`,
    '',
    `- Sent: ${sum((leg) => leg.requests)} requests, with repeats, races, malformed and cut bodies.`,
    `- Faults: ${sum((leg) => leg.kills)} times SIGKILL to random processes and stores, ${sum((leg) => leg.cuts)} power cuts.`,
    `- Happened within a documented window: ${sum((leg) => leg.windows)}.`,
    `- Violations: ${broken.length}.`,
    ...broken.slice(0, VIOLATIONS_KEPT).map((words) => `  - ${words}`),
    '',
    broken.length === 0
      ? `0 of ${acks} lost means: at most ${atMost} in a million are lost under these faults, with a confidence of 95 %.`
      : 'A promise was broken.',
    '',
    'Not played:',
    '',
    ...NOT_PLAYED.map((what) => `- ${what}`),
    '',
  ].join('\n');
}
