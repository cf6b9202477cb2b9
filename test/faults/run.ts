/**
 * `make chaos`: every fault of the list under load, and an audit of what was promised; `make drill`:
 * the same beside Prometheus, and the alerts each fault must raise.
 */
import { parseArgs, styleText } from 'node:util';
import { messageOf } from '../../deploy/local/stores/wait.ts';
import { table } from '../../internal/operators/view/terminal.ts';
import { secondsLog, wholeNumber } from '../support/flags.ts';
import { counted } from './audit.ts';
import { faults, faultsNamed } from './list.ts';
import { isInDrill, writeTable } from './operator.ts';
import { type ChaosResult, runChaos } from './play.ts';
import { powerDiskObstacle } from './power-disk.ts';
import { randomKills } from './processes.ts';
import { type Alarm, watchAlerts } from './watch.ts';

const DEFAULT_KILLS = 20;
const DEFAULT_SECONDS_PER_FAULT = 6;
/** The noise of this load crosses no threshold. */
const WATCHED_PER_SECOND = 40;
const WATCHED_SEED = 1;
const SEEDS = 1_000_000;
/** Runs that must lose records: the first does not sync, the second answers before it syncs. */
const CONTROLS = {
  'fsync-off': 'fsync=off',
  'commits-unsynced': 'synchronous_commit=off',
} as const;

const text = { type: 'string', default: '' } as const;
const { values: flags } = parseArgs({
  options: {
    seed: text,
    kills: text,
    'seconds-per-fault': text,
    faults: text,
    cuts: text,
    control: text,
    settle: text,
    watch: { type: 'boolean', default: false },
    json: { type: 'boolean', default: false },
    table: { type: 'boolean', default: false },
  },
});

type Flag = 'seed' | 'kills' | 'cuts' | 'seconds-per-fault';
const given = (name: Flag, usual: number): number => wholeNumber(name, flags[name], usual);

async function main(): Promise<boolean> {
  const { watch } = flags;
  const seed = given('seed', watch ? WATCHED_SEED : Math.floor(Math.random() * SEEDS));
  const kills = given('kills', flags.faults === '' && !watch ? DEFAULT_KILLS : 0);
  const secondsPerFault = given('seconds-per-fault', DEFAULT_SECONDS_PER_FAULT);
  const cuts = given('cuts', 0);
  const settle = flags.settle || (watch ? 'end' : 'each');
  if (settle !== 'each' && settle !== 'end') throw new Error('--settle must be each or end');
  const chosen =
    flags.faults === '' ? faults : faultsNamed(flags.faults.split(',').filter(Boolean));
  const control = Object.entries(CONTROLS).find(([name]) => name === flags.control);
  if (flags.control !== '' && control === undefined)
    throw new Error(`--control must be ${Object.keys(CONTROLS).join(' or ')}`);
  const stop = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stop.abort());
  const log = secondsLog();
  const alarms: Alarm[] = [];
  let tables = Promise.resolve();
  const onAlarm = (alarm: Alarm): void => {
    alarms.push(alarm);
    log(`  ${cellsOf(alarm).join(' | ')}`);
    if (flags.table) tables = tables.then(() => writeTable(alarms));
  };
  const { signal } = stop;
  const obstacle = watch ? undefined : await powerDiskObstacle();
  if (obstacle !== undefined && chosen.some(({ onPowerDisks }) => onPowerDisks))
    log(`left out: power-cut: ${obstacle}`);
  const again = `--seed ${seed} --kills ${kills} --seconds-per-fault ${secondsPerFault} --settle ${settle}`;
  log(`again with: ${again} --faults ${chosen.map(({ name }) => name).join()}`);
  const played = chosen
    .filter((fault) => (watch ? isInDrill(fault) : !fault.onPowerDisks || obstacle === undefined))
    .map((fault) => (fault.onPowerDisks && cuts > 0 ? { ...fault, times: cuts } : fault));
  if (played.length === 0) throw new Error('none of these faults can be played here');
  const result = await runChaos({
    seed,
    faults: [...played, ...(kills > 0 && !watch ? [randomKills(kills)] : [])],
    postgresql: control === undefined ? [] : [control[1]],
    secondsPerFault,
    settle,
    signal,
    log,
    ...(watch
      ? {
          perSecond: WATCHED_PER_SECOND,
          watch: (world, folder) => watchAlerts(world, folder, { signal, log, onAlarm }),
        }
      : {}),
  });
  await tables;
  if (signal.aborted) log('interrupted: what is called stuck below was given no time to end');
  if (flags.json) console.log(JSON.stringify({ ...resultForPrograms(result), alarms }));
  else {
    if (watch) console.log(`\n${table(alarms.map(cellsOf))}`);
    console.log(`\n${report(result)}`);
  }
  return !signal.aborted && isClean(result) && alarms.every(isWell);
}

const PRINTED = 30;

function isClean(result: ChaosResult): boolean {
  return result.audit.violations.length === 0 && result.troubles.length === 0;
}

function report(result: ChaosResult): string {
  const { phases, total, violations, windows } = result.audit;
  const seconds = (milliseconds?: number): string =>
    milliseconds === undefined ? '-' : `${(milliseconds / 1_000).toFixed(1)} s`;
  const rows = [...phases, ['total', total] as const].map(([name, counts]) => {
    const times = result.phases.find(({ fault }) => fault === name);
    const numbers = counted.map((what) => String(counts[what]));
    const ends = times === undefined ? [] : [seconds(times.goesOnMs), seconds(times.settleMs)];
    return [name, String(times?.injections ?? ''), ...numbers, ...ends];
  });
  const allowed = Object.groupBy(windows, ({ words, phase }) => `${words} (${phase})`);
  const isGood = isClean(result);
  const verdict = isGood
    ? `clean: ${total.requests} requests, every promise kept`
    : `${violations.length} violations, ${result.troubles.length} troubles`;
  return [
    table([['fault', 'times', ...counted, 'goes on after', 'settled after'], ...rows]),
    `killed: ${JSON.stringify(result.kills)}; stores: ${result.stores}; ${result.ledgerFile}`,
    ...Object.entries(allowed).map(
      ([words, some = []]) => `allowed: ${some.length} × ${words}, e.g. ${some[0]?.id}`,
    ),
    ...result.troubles.map((words) => `TROUBLE: ${words}`),
    ...violations
      .slice(0, PRINTED)
      .map(({ kind, phase, id, words }) => `VIOLATION: ${kind} (${phase}) ${id}: ${words}`),
    `${styleText(isGood ? 'green' : 'red', verdict)} (seed ${result.seed})`,
  ].join('\n');
}

const resultForPrograms = ({ audit, ...result }: ChaosResult): object => ({
  ...result,
  audit: { ...audit, phases: Object.fromEntries(audit.phases) },
});

const short = (alert: string): string => alert.replace('PartnerIngest', '');

const isWell = ({ missing, unexpected, resolvedAfter }: Alarm): boolean =>
  missing.length + unexpected.length === 0 && resolvedAfter !== undefined;

function cellsOf(alarm: Alarm): string[] {
  const { fault, fired, resolvedAfter, missing, unexpected } = alarm;
  const times = Object.entries(fired).map(([alert, at]) => `${short(alert)} ${at.toFixed(0)} s`);
  const wrong = [
    ...missing.map((alert) => `missing: ${short(alert)}`),
    ...unexpected.map((alert) => `not meant: ${short(alert)}`),
    ...(resolvedAfter === undefined ? ['not over'] : []),
  ];
  const over = resolvedAfter === undefined ? '' : `over after ${resolvedAfter.toFixed(0)} s`;
  return [fault, times.join(', '), over, wrong.join('; ') || 'ok'];
}

try {
  process.exitCode = (await main()) ? 0 : 1;
} catch (error) {
  console.error(messageOf(error));
  process.exitCode = 2;
}
