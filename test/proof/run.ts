/**
 * `make proof ACKS=1000000 KILLS=1000 CUTS=100 SEED=1`: control runs that must lose, then kills and
 * power cuts until that number of requests was answered 202. The folder of the run has all that a
 * stranger needs to check it (docs/proof.md). A run that was interrupted, in whatever way, goes on
 * by its seed: a leg counts once its verdict is there and its files have the digests that it names.
 */
import { execFileSync } from 'node:child_process';
import { hash } from 'node:crypto';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { appendFile, mkdir, readdir, readFile, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join, relative, sep } from 'node:path';
import { parseArgs, styleText } from 'node:util';
import '../support/compile-cache.ts';
import { messageOf } from '../../deploy/local/stores/wait.ts';
import { duration } from '../../internal/operators/view/terminal.ts';
import { ROOT } from '../../tools/root.ts';
import type { Fault } from '../faults/fault.ts';
import { faultsNamed } from '../faults/list.ts';
import { powerDiskObstacle } from '../faults/power-disk.ts';
import { randomKills } from '../faults/processes.ts';
import { secondsLog, wholeNumber } from '../support/flags.ts';
import { machine } from '../support/machine.ts';
import { findChecker } from './checker.ts';
import { controls, playControl, type ControlResult } from './controls.ts';
import { nameOf, playLeg, sha256Of, writeWhole, type Leg, type Plan } from './leg.ts';
import { pageOf, played, type Begun, type Run } from './page.ts';

const FOLDER = join(ROOT, '.run/proof');
/** Start, drain and verdict of a leg cost as much as some thousand acknowledgements. */
const LEG_ACKS = 25_000;
/** While one leg waits for the claims of killed processors, the others use the machine. */
const LEGS_AT_ONCE = 3;
/** Legs that end without a verdict, as where a store does not start; they are played again. */
const MOST_FAILED = 5;
const DEFAULTS = { acks: 20_000, kills: 40, cuts: 4, seed: 1 } as const;
const LEFT = ['world', 'service'];
const WITH_CHANGES = ' with changes';
type Flag = keyof typeof DEFAULTS;

const text = { type: 'string', default: '' } as const;
const { values: flags } = parseArgs({
  options: {
    acks: text,
    kills: text,
    cuts: text,
    seed: text,
    json: { type: 'boolean', default: false },
  },
});

const log = secondsLog();
const given = (name: Flag): number => wholeNumber(name, flags[name], DEFAULTS[name]);

async function main(): Promise<boolean> {
  const plan = {
    acks: given('acks'),
    kills: given('kills'),
    cuts: given('cuts'),
    seed: given('seed'),
  };
  const [soon, now] = [new AbortController(), new AbortController()];
  for (const name of ['SIGINT', 'SIGTERM'] as const)
    process.on(name, () => (soon.signal.aborted ? now : soon).abort());
  const folder = join(FOLDER, String(plan.seed));
  await mkdir(join(folder, 'legs'), { recursive: true });
  await alone(folder);
  await findChecker(log);
  const obstacle = await powerDiskObstacle();
  if (obstacle !== undefined) log(`no power cuts here: ${obstacle}`);
  const run: Run = {
    command: `make proof ACKS=${plan.acks} KILLS=${plan.kills} CUTS=${plan.cuts} SEED=${plan.seed}`,
    commit: commitOf(),
    withoutPowerCuts: obstacle,
    ...plan,
  };
  await sameRun(join(folder, 'run.json'), run);
  const ofControls = await playControls(folder, plan.seed, obstacle, soon.signal);
  const legs = await playLegs(folder, run, { soon, now: now.signal });
  const page = pageOf({ run, legs, controls: ofControls, begun: await begunIn(folder) });
  await writeWhole(join(folder, 'result.md'), page);
  await writeSums(folder);
  if (flags.json) console.log(JSON.stringify({ ...run, folder, legs, controls: ofControls }));
  else console.log(`${page}\n${folder}`);
  const kept =
    isWhole(legs, run) && legs.every(({ found, unexplained }) => found + unexplained.length === 0);
  const isGood =
    kept &&
    ofControls.every(({ audit, checker }) => audit > 0 && checker > 0) &&
    !soon.signal.aborted;
  console.error(styleText(isGood ? 'green' : 'red', isGood ? 'proved' : 'not proved'));
  return isGood;
}

/** Throws where another process plays into the folder. The kernel ends this lock with us. */
async function alone(folder: string): Promise<void> {
  if (process.platform !== 'linux') return;
  const lock = createServer()
    .listen(`\0${hash('sha256', folder)}`)
    .unref();
  await once(lock, 'listening').catch((cause: unknown) => {
    throw new Error(`another run plays into ${folder}`, { cause });
  });
}

/** A folder holds one run of one commit; a second plan of its seed would mix two. */
async function sameRun(file: string, run: Run): Promise<void> {
  const wanted = `${JSON.stringify(run, null, 2)}\n`;
  if (!existsSync(file)) return writeWhole(file, wanted);
  if (run.commit.endsWith(WITH_CHANGES) || (await readFile(file, 'utf8')) !== wanted)
    throw new Error(
      `${file} is of another run, or of files that no commit has: take another SEED, or delete its folder`,
    );
}

async function playControls(
  folder: string,
  seed: number,
  obstacle: string | undefined,
  signal: AbortSignal,
): Promise<ControlResult[]> {
  const results: ControlResult[] = [];
  for (const [name, { fault }] of Object.entries(controls)) {
    const own = join(folder, 'controls', name);
    const file = join(own, 'result.json');
    if (existsSync(file)) {
      results.push(JSON.parse(await readFile(file, 'utf8')) as ControlResult);
      continue;
    }
    if (signal.aborted || (fault === 'power-cut' && obstacle !== undefined)) continue;
    const result = await playControl(name, own, { seed, signal, log }).catch((error: unknown) => {
      if (!signal.aborted) throw error;
    });
    if (result === undefined) break;
    await writeWhole(file, `${JSON.stringify(result, null, 2)}\n`);
    results.push(result);
  }
  return results;
}

async function playLegs(
  folder: string,
  run: Run,
  { soon, now }: { readonly soon: AbortController; readonly now: AbortSignal },
): Promise<Leg[]> {
  const place = join(folder, 'legs');
  const legs: Leg[] = [];
  const left: number[] = [];
  const there = (await readdir(place)).map((name) => Number.parseInt(name, 10) || 0);
  let last = Math.max(legsOf(run.acks), ...there);
  for (let number = 1; number <= last; number += 1) {
    const leg = await readLeg(place, number);
    if (leg === undefined) left.push(number);
    else legs.push(leg);
  }
  if (legs.length > 0) log(`goes on: ${acksOf(legs)} acknowledged in ${legs.length} legs`);
  const [begun, before] = [performance.now(), acksOf(legs)];
  let failed = 0;
  const playNext = async (): Promise<void> => {
    for (let number = left.shift(); number !== undefined; number = left.shift()) {
      if (soon.signal.aborted) return;
      await note(folder, { leg: number, at: new Date(), machine: machine() });
      try {
        const leg = await playLeg(planOf(number, run, place), { soon: soon.signal, now });
        if (commitOf() !== run.commit) throw new Error('the files of the service were changed');
        await writeWhole(legFile(place, number), `${JSON.stringify(leg)}\n`);
        legs.push(leg);
        const done = acksOf(legs);
        const leftMs = ((performance.now() - begun) / (done - before)) * (run.acks - done);
        log(
          `leg ${number}: ${done} of ${run.acks} acknowledged, ${leg.found + leg.unexplained.length} violations, about ${duration(Math.max(0, leftMs))} left`,
        );
      } catch (error) {
        if (now.aborted) return;
        log(`leg ${number} failed: ${messageOf(error)}`);
        await note(folder, { leg: number, at: new Date(), failed: messageOf(error) });
        left.push(number);
        failed += 1;
        if (failed > MOST_FAILED) soon.abort();
      }
    }
  };
  while (!soon.signal.aborted && (left.length > 0 || !isWhole(legs, run))) {
    // Legs that ended early leave a rest.
    if (left.length === 0)
      for (let more = legsOf(run.acks - acksOf(legs)); more > 0; more -= 1) left.push((last += 1));
    await Promise.all(Array.from({ length: LEGS_AT_ONCE }, playNext));
  }
  const kept = legs.flatMap(({ number, files }) => [
    `${nameOf(number)}.json`,
    ...Object.keys(files),
  ]);
  for (const name of await readdir(place))
    if (name !== 'world' && !kept.includes(name)) await rm(join(place, name));
  return legs.toSorted((one, other) => one.number - other.number);
}

const legsOf = (acks: number): number => Math.max(1, Math.ceil(acks / LEG_ACKS));

/** Says whether all was acknowledged and played that was asked for. */
const isWhole = (legs: readonly Leg[], { acks, kills, cuts, withoutPowerCuts }: Run): boolean =>
  acksOf(legs) >= acks &&
  played(legs, 'random-kills') >= kills &&
  (withoutPowerCuts !== undefined || played(legs, 'power-cut') >= cuts);

const legFile = (folder: string, number: number): string => join(folder, `${nameOf(number)}.json`);

/** Undefined for a leg without a verdict, or with files that are not as they were judged. */
async function readLeg(folder: string, number: number): Promise<Leg | undefined> {
  try {
    const leg = JSON.parse(await readFile(legFile(folder, number), 'utf8')) as Leg;
    for (const [name, digest] of Object.entries(leg.files))
      if ((await sha256Of(join(folder, name))) !== digest) return undefined;
    return leg;
  } catch {
    return undefined;
  }
}

const begunFile = (folder: string): string => join(folder, 'begun.jsonl');

/** Begins on a line of its own, whatever became of the one before. */
const note = (folder: string, what: object): Promise<void> =>
  appendFile(begunFile(folder), `\n${JSON.stringify(what)}`);

/** The legs that were begun, and those that failed. */
async function begunIn(folder: string): Promise<Begun[]> {
  const lines = await readFile(begunFile(folder), 'utf8').catch(() => '');
  return lines.split('\n').flatMap((line) => {
    try {
      return [JSON.parse(line) as Begun];
    } catch {
      return [];
    }
  });
}

/** The share of the run that this leg plays. */
function planOf(number: number, run: Run, folder: string): Plan {
  const legs = legsOf(run.acks);
  const share = (all: number): number =>
    number > legs
      ? Math.ceil(all / legs)
      : Math.floor((all * number) / legs) - Math.floor((all * (number - 1)) / legs);
  const cuts = run.withoutPowerCuts === undefined ? share(run.cuts) : 0;
  const [powerCut] = faultsNamed(['power-cut']);
  const kills = Array<Fault>(share(run.kills)).fill(randomKills(run.kills));
  return {
    number,
    seed: run.seed,
    acks: share(run.acks),
    faults: [...kills, ...Array<Fault>(cuts).fill(powerCut!)],
    folder,
  };
}

const acksOf = (legs: readonly Leg[]): number => legs.reduce((sum, { acks }) => sum + acks, 0);

function commitOf(): string {
  const git = (...args: string[]): string =>
    execFileSync('git', args, { cwd: ROOT, encoding: 'utf8' }).trim();
  try {
    return `${git('rev-parse', 'HEAD')}${git('status', '--porcelain') === '' ? '' : WITH_CHANGES}`;
  } catch {
    return 'unknown';
  }
}

/** Writes SHA256SUMS, as `sha256sum --check` reads it. */
async function writeSums(folder: string): Promise<void> {
  const names = (await readdir(folder, { recursive: true, withFileTypes: true }))
    .filter((entry) => entry.isFile() && entry.name !== 'SHA256SUMS')
    .map((entry) => join(entry.parentPath, entry.name))
    // Logs of legs that failed, and what an interrupted control left.
    .filter(
      (name) =>
        !relative(folder, name)
          .split(sep)
          .some((part) => LEFT.includes(part)),
    )
    .toSorted();
  const lines: string[] = [];
  for (const name of names) lines.push(`${await sha256Of(name)}  ${relative(folder, name)}\n`);
  await writeWhole(join(folder, 'SHA256SUMS'), lines.join(''));
}

const code = await main().then(
  (isGood) => (isGood ? 0 : 1),
  (error: unknown) => {
    console.error(messageOf(error));
    return 2;
  },
);
// Nothing that a leg which failed left behind may keep this process.
process.exit(code);
