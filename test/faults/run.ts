/**
 * `make chaos`: every fault of the list under load, and an audit of what was promised; `make drill`:
 * the same beside Prometheus, and the alerts each fault must raise. `node test/faults/run.ts --help`.
 */
import { writeFile } from 'node:fs/promises';
import { parseArgs } from 'node:util';
import type { Fault } from './fault.ts';
import { runChaos } from './play.ts';
import { faults, faultsNamed } from './list.ts';
import { randomKills } from './processes.ts';
import { alarmReport, cellsOf, isClean, isWell, report } from './report.ts';
import { watchAlerts, type Alarm } from './watch.ts';

const DEFAULT_KILLS = 20;
/** Under watch, so that the noise of the load crosses no threshold. */
const WATCHED_PER_SECOND = 40;
const WATCHED_SEED = 1;
const DEFAULT_SECONDS_PER_FAULT = 6;
const SEEDS = 1_000_000;
const USAGE_ERROR = 2;
const INTERRUPTED = 130;

const HELP = `node test/faults/run.ts [--seed N] [--kills N] [--seconds-per-fault N] [--faults NAME,NAME] [--settle each|end] [--watch] [--json FILE]

  --seed               plan of bodies, victims and instants; a random one when left out
  --kills              SIGKILLs of random parts after the faults (${DEFAULT_KILLS}, or 0 with --faults)
  --seconds-per-fault  how long each fault lasts (${DEFAULT_SECONDS_PER_FAULT})
  --faults             only these:
${faults.map(({ name, about }) => `                         ${name.padEnd(22)} ${about}`).join('\n')}
  --settle             wait until all is final after each fault, or only at the end: quicker (each)
  --watch              Prometheus with the chart's rules, minutes as seconds: each fault lasts until its alerts fire,
                       no other may, and all must be over after it; all settles at the end
  --json               the whole result for programs
`;

interface Wanted {
  readonly seed: number;
  readonly seconds: number;
  readonly settle: 'each' | 'end';
  readonly faults: readonly Fault[];
  readonly replay: string;
  readonly watch: boolean;
  readonly json: string | undefined;
}

function parse(args: readonly string[]): Wanted | 'help' {
  const text = { type: 'string' } as const;
  const { values } = parseArgs({
    args: [...args],
    options: {
      seed: text,
      kills: text,
      'seconds-per-fault': text,
      faults: text,
      settle: text,
      watch: { type: 'boolean' },
      json: text,
      help: { type: 'boolean' },
    },
  });
  if (values.help === true) return 'help';
  const watch = values.watch === true;
  const usualSeed = watch ? WATCHED_SEED : Math.floor(Math.random() * SEEDS);
  const seed = wholeNumber('seed', values.seed, usualSeed);
  // An empty value is none, so that make can hand on what was not given.
  const list = values.faults === '' ? undefined : values.faults;
  const kills = wholeNumber(
    'kills',
    values.kills,
    list === undefined && !watch ? DEFAULT_KILLS : 0,
  );
  const seconds = wholeNumber(
    'seconds-per-fault',
    values['seconds-per-fault'],
    DEFAULT_SECONDS_PER_FAULT,
  );
  const usualSettle = watch ? 'end' : 'each';
  const settle = values.settle === undefined || values.settle === '' ? usualSettle : values.settle;
  if (settle !== 'each' && settle !== 'end') throw new Error('--settle must be each or end');
  const names = list?.split(',').filter((name) => name !== '');
  const chosen = names === undefined ? faults : faultsNamed(names);
  const replay = [
    `node test/faults/run.ts --seed ${seed} --kills ${kills} --seconds-per-fault ${seconds} --settle ${settle}`,
    ...(watch ? ['--watch'] : []),
    ...(names === undefined ? [] : [`--faults ${names.join(',')}`]),
  ].join(' ');
  return {
    seed,
    seconds,
    settle,
    replay,
    watch,
    json: values.json,
    // The rules know a Redis of one server only.
    faults: watch
      ? chosen.filter(({ redis }) => redis === undefined)
      : [...chosen, ...(kills > 0 ? [randomKills(kills)] : [])],
  };
}

function wholeNumber(name: string, given: string | undefined, usual: number): number {
  if (given === undefined || given === '') return usual;
  if (!/^\d{1,9}$/.test(given)) throw new Error(`--${name} must be a whole number`);
  return Number(given);
}

async function main(args: readonly string[]): Promise<number> {
  let wanted: Wanted | 'help';
  try {
    wanted = parse(args);
  } catch (error) {
    console.error(error instanceof Error ? error.message : error);
    return USAGE_ERROR;
  }
  if (wanted === 'help') {
    console.log(HELP);
    return 0;
  }
  const stop = new AbortController();
  const onSignal = (): void => {
    if (stop.signal.aborted) process.exit(INTERRUPTED);
    console.error('stopping; once more to leave at once');
    stop.abort();
  };
  process.on('SIGINT', onSignal);
  process.on('SIGTERM', onSignal);
  const startedAt = performance.now();
  const log = (line: string): void => {
    console.error(`${((performance.now() - startedAt) / 1_000).toFixed(1).padStart(6)} s  ${line}`);
  };
  const alarms: Alarm[] = [];
  const onAlarm = (alarm: Alarm): void => {
    alarms.push(alarm);
    log(`  ${cellsOf(alarm).slice(2).join(' | ')}`);
  };
  log(`seed ${wanted.seed}; again with: ${wanted.replay}`);
  try {
    const result = await runChaos({
      seed: wanted.seed,
      faults: wanted.faults,
      secondsPerFault: wanted.seconds,
      settle: wanted.settle,
      signal: stop.signal,
      log,
      ...(wanted.watch
        ? {
            perSecond: WATCHED_PER_SECOND,
            watch: (world, folder) =>
              watchAlerts(world, folder, { signal: stop.signal, log, onAlarm }),
          }
        : {}),
    });
    if (stop.signal.aborted) return INTERRUPTED;
    if (wanted.watch) console.log(`\n${alarmReport(alarms)}`);
    console.log(`\n${report(result)}\nagain: ${wanted.replay}`);
    if (wanted.json !== undefined && wanted.json !== '') {
      const phases = Object.fromEntries(result.audit.phases);
      await writeFile(
        wanted.json,
        `${JSON.stringify({ ...result, alarms, audit: { ...result.audit, phases } }, null, 2)}\n`,
      );
    }
    return isClean(result) && alarms.every(isWell) ? 0 : 1;
  } catch (error) {
    console.error(error instanceof Error ? error.message : error);
    return 1;
  }
}

process.exitCode = await main(process.argv.slice(2));
