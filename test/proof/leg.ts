/**
 * A leg of a long run: a number of acknowledged requests under faults, in a world of its own, so
 * that memory and disk stay bounded and legs can be played side by side. It is audited from its
 * files once all is final, after its last fault.
 */
import { createHash } from 'node:crypto';
import { createReadStream, createWriteStream } from 'node:fs';
import { rename, rm, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import { ACCOUNTS, type Account } from '../../internal/account/account.ts';
import { SUBMISSIONS, type SubmissionRecord } from '../../internal/submission/submission.ts';
import { audit } from '../faults/audit.ts';
import type { Fault } from '../faults/fault.ts';
import { startFollower } from '../faults/follower.ts';
import { readLedger } from '../faults/ledger.ts';
import { startLoad } from '../faults/load.ts';
import { settle } from '../faults/play.ts';
import { openChaosWorld, type ChaosWorld } from '../faults/world.ts';
import { newRandom } from '../support/random.ts';
import { checkHistory, type Verdict } from './checker.ts';

/** What a leg plays. */
export interface Plan {
  readonly number: number;
  readonly seed: number;
  readonly acks: number;
  readonly faults: readonly Fault[];
  /** Gets `NUMBER.jsonl.gz` and `NUMBER.mails.json.gz`. */
  readonly folder: string;
  /** What a control run changes: settings of PostgreSQL, the folder of the service. */
  readonly postgresql?: readonly string[];
  readonly project?: string;
}

/** What became of it. */
export interface Leg {
  readonly number: number;
  readonly stores: string;
  readonly acks: number;
  readonly requests: number;
  readonly faults: Readonly<Record<string, number>>;
  /** What our audit finds: how many, and the first ones. */
  readonly found: number;
  readonly violations: readonly string[];
  /** What happened in a documented window. */
  readonly windows: readonly string[];
  /** Requests whose client gave up, which may be the machine's fault: they count as `info`. */
  readonly late: number;
  readonly checked: Verdict;
  /** What the checker finds beside those windows. */
  readonly unexplained: Verdict['violations'];
  readonly seconds: number;
  /** Where they went; faults and their recovery are times of the load. */
  readonly phases: Readonly<Record<string, number>>;
  /** SHA-256 of its files by their names. */
  readonly files: Readonly<Record<string, string>>;
}

/** More than the machine can take, so that writes are joined as under a heavy load. */
const PER_SECOND = 1_000;
const AT_ONCE = 128;
/** Its writes are joined, too: a leg spends most of its time on what waits for processors. */
const PROCESSOR_CONCURRENCY = '64';
/** While acknowledgements are ahead of the faults, one of this number is sent. */
const SHARE_AHEAD = 20;
/** The range of numbers of one leg. */
const RANGE = 100_000;
const VIOLATIONS_KEPT = 20;
const POLL_MS = 200;
/** On a busy machine a leg ends before all is acknowledged and played. */
const LONGEST_LOAD_MS = 40 * 60_000;

/** When a run is asked to end: its legs are judged with what they have, or dropped. */
export interface Stop {
  readonly soon: AbortSignal;
  readonly now: AbortSignal;
}

export const nameOf = (number: number): string => String(number).padStart(4, '0');

/** Throws if it cannot be played to its end, and keeps the logs of its processes then. */
export async function playLeg(plan: Plan, stop: Stop): Promise<Leg> {
  const [startedAt, watch] = [performance.now(), stopwatch()];
  const folder = join(plan.folder, 'world', nameOf(plan.number));
  const world = await openChaosWorld({
    folder,
    random: newRandom(plan.seed + plan.number),
    onPowerDisks: plan.faults.some(({ onPowerDisks }) => onPowerDisks),
    postgresql: plan.postgresql ?? [],
    settings: { PROCESSOR_CONCURRENCY },
    ...(plan.project !== undefined && { project: plan.project }),
    signal: stop.now,
    log: () => undefined,
  });
  try {
    watch.end('stores');
    const history = join(folder, 'history.jsonl');
    const played = await play(world, plan, { history, watch, ...stop });
    const seconds = (performance.now() - startedAt) / 1_000;
    const leg = { ...played, seconds, phases: watch.seconds };
    if (leg.found + leg.unexplained.length > 0) return leg;
    await world.close();
    await rm(folder, { recursive: true, force: true });
    return leg;
  } finally {
    await world.close();
  }
}

async function play(
  world: ChaosWorld,
  plan: Plan,
  { history, watch, soon, now }: Stop & { readonly history: string; readonly watch: Stopwatch },
): Promise<Omit<Leg, 'seconds' | 'phases'>> {
  const { facts } = world;
  const random = newRandom(plan.seed * RANGE + plan.number);
  let [most, asked] = [Infinity, 0];
  /** Or faults that take long would become rare among acknowledgements. Some go on, to be hit. */
  const isAhead = (): boolean =>
    load.ledger.acknowledged > most && (asked += 1) % SHARE_AHEAD !== 0;
  const load = startLoad({
    file: history,
    random,
    first: plan.number * RANGE,
    extensions: true,
    keys: world.keys,
    targets: () => (isAhead() ? [] : world.targets()),
    phase: () => `leg ${plan.number}`,
    perSecond: PER_SECOND,
    atOnce: AT_ONCE,
  });
  const follower = startFollower({ key: world.keys.good, targets: () => world.targets() });
  const { ledger } = load;
  const endsAt = performance.now() + LONGEST_LOAD_MS;
  const reaches = async (wanted: number): Promise<boolean> => {
    while (ledger.acknowledged < wanted) {
      if (soon.aborted || performance.now() > endsAt) return false;
      await world.pause(POLL_MS);
      facts.collectMails();
    }
    return true;
  };
  const faults: Fault[] = [];
  let records: SubmissionRecord[] = [];
  try {
    const moments = plan.faults.map(() => random.next() * plan.acks).toSorted((a, b) => a - b);
    for (const [index, fault] of random.shuffled(plan.faults).entries()) {
      most = moments[index]! + plan.acks / plan.faults.length;
      if (!(await reaches(moments[index]!))) break;
      faults.push(fault);
      watch.end('load');
      try {
        await fault.prepare?.(world);
        await fault.inject(world, random);
        ledger.fault(fault.name, facts.kills);
        await world.pause(fault.rhythm?.onMs ?? fault.leastMs ?? 0);
        watch.end(fault.name);
      } finally {
        await fault.heal(world);
      }
      watch.end('recovery');
      ledger.fault('healed', facts.kills);
    }
    most = Infinity;
    await reaches(plan.acks);
    watch.end('load');
    if (ledger.acknowledged === 0) throw new Error('nothing was acknowledged');
    await settle(world, load, { signal: now, log: () => undefined });
    await load.pause();
    now.throwIfAborted();
    watch.end('drain');
    records = await world.db.collection<SubmissionRecord>(SUBMISSIONS).find().toArray();
    ledger.read(records);
    await follower.catchUp();
    watch.end('follower');
  } finally {
    await load.stop();
    await follower.stop();
  }
  facts.collectMails();
  const mails = join(plan.folder, `${nameOf(plan.number)}.mails.json`);
  const result = audit({
    ledger: await readLedger(history),
    records,
    accounts: await world.db.collection<Account>(ACCOUNTS).find().toArray(),
    mails: facts.mails,
    facts,
    allows: new Set(faults.flatMap(({ allows }) => allows ?? [])),
    extensions: { receiptKeys: world.receiptKeys, followed: follower.states },
  });
  watch.end('audit');
  const checked = await checkHistory(history);
  watch.end('checker');
  const inWindow = new Set(result.windows.map(({ id }) => id));
  const explained = new Set(
    ledger.entries
      .filter(({ answer }) => inWindow.has(answer?.xRequestId ?? ''))
      .flatMap(({ n, idempotencyKey = '' }) => [`request ${n}`, idempotencyKey]),
  );
  const broken = result.violations.filter(({ kind }) => kind !== 'left_open');
  const words = broken.map(({ kind, id, words: more }) => `${kind} ${id}: ${more}`);
  const found = [...words, ...facts.troubles, ...follower.troubles];
  const files = {
    ...(await pack(
      createReadStream(history),
      join(plan.folder, `${nameOf(plan.number)}.jsonl.gz`),
    )),
    ...(await pack([JSON.stringify(facts.mails)], `${mails}.gz`)),
  };
  watch.end('packing');
  return {
    number: plan.number,
    stores: `${world.mongo.description}, ${world.redis.description}`,
    acks: ledger.acknowledged,
    requests: ledger.entries.length,
    faults: Object.fromEntries(
      Map.groupBy(faults, ({ name }) => name)
        .entries()
        .map(([name, some]) => [name, some.length]),
    ),
    found: found.length,
    violations: found.slice(0, VIOLATIONS_KEPT),
    windows: result.windows.map(({ id, words: more }) => `${id}: ${more}`),
    late: result.violations.length - broken.length,
    checked,
    unexplained: checked.violations.filter(({ partition }) => !explained.has(partition)),
    files,
  };
}

type Stopwatch = ReturnType<typeof stopwatch>;

/** Adds the time since the last end to a part. */
function stopwatch() {
  const seconds: Record<string, number> = {};
  let since = performance.now();
  return {
    seconds,
    end(part: string): void {
      const now = performance.now();
      seconds[part] = (seconds[part] ?? 0) + (now - since) / 1_000;
      since = now;
    },
  };
}

/** Writes the file as gzip does, and returns its digest by its name. */
async function pack(
  content: Iterable<string> | NodeJS.ReadableStream,
  file: string,
): Promise<Record<string, string>> {
  await pipeline(content, createGzip(), createWriteStream(file));
  return { [basename(file)]: await sha256Of(file) };
}

export async function sha256Of(file: string): Promise<string> {
  const digest = createHash('sha256');
  await pipeline(createReadStream(file), digest);
  return digest.digest('hex');
}

/** Writes a file that is whole or not there. */
export async function writeWhole(file: string, text: string): Promise<void> {
  await writeFile(`${file}.new`, text);
  await rename(`${file}.new`, file);
}
