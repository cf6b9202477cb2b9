/** What an operator sees of a fault: the line on Now, and the first command of an alert's page. */
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { cpus, totalmem } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { Activity } from '../../internal/operators/view/activity.ts';
import { nowView } from '../../internal/operators/view/now.ts';
import { readPods } from '../../internal/operators/view/readings.ts';
import { KeyStore } from '../../internal/partner/key-store.ts';
import { SupportQueries } from '../../internal/submission/support-queries.ts';
import { TrafficReader } from '../../internal/traffic/traffic-reader.ts';
import { deadLettersView } from '../../internal/operators/view/search.ts';
import { nowTraffic } from '../../internal/operators/view/traffic.ts';
import { ROOT } from '../../tools/root.ts';
import { alertsOf, renderRules, type AlertRule } from '../chart/rules.ts';
import { alertSections, read } from '../support/pages.ts';
import type { Fault } from './fault.ts';
import { faults } from './list.ts';
import type { Alarm } from './watch.ts';
import type { ChaosWorld, Slot } from './world.ts';

const COMMAND_TIMEOUT_MS = 60_000;
const READY_TIMEOUT_MS = 1_000;
/** The pods are read without a database that hangs. */
const STORED_TIMEOUT_MS = 1_000;

/** Returns what Now says, without its numbers but for the status of an answer. */
export function nowOf({ db, slots }: ChaosWorld): () => Promise<readonly string[]> {
  const clock = { now: () => new Date(), monotonicMs: () => performance.now() };
  const activity = new Activity(clock.now());
  const keys = new KeyStore({ db, clock });
  const submissions = new SupportQueries(db);
  const reader = new TrafficReader(db);
  const readStored = async (): Promise<void> => {
    try {
      const dead = await deadLettersView({ submissions }, clock.now(), COMMAND_TIMEOUT_MS);
      const secrets = await keys.problems.list();
      const traffic = await nowTraffic(reader, clock.now());
      activity.stored = {
        partners: [],
        turnedAway: { counts: [], recorded: [] },
        dead,
        secrets,
        findings: [],
        putAside: 0,
        traffic,
        at: clock.now(),
      };
    } catch {
      activity.stored = { ...activity.stored, fault: 'MongoDB cannot be read' };
    }
  };
  let reading: Promise<void> | undefined;
  return async () => {
    reading ??= readStored().finally(() => (reading = undefined));
    await Promise.race([reading, pause(STORED_TIMEOUT_MS)]);
    activity.add(
      await readPods(slots.map(({ adminPort }) => `http://127.0.0.1:${adminPort}`)),
      clock.now(),
    );
    const { problems } = nowView(activity, clock.now());
    return problems.map(({ what }) => what.replaceAll(/(?<!answered )\b\d+/g, 'N'));
  };
}

/** A kubectl with the run's processes as pods and deployments; the commands of an exec run here. */
const KUBECTL = `kubectl() {
  local all="$*" component pod port=9090
  component=$(sed -n 's/.*component=\\([a-z]*\\).*/\\1/p' <<< "$all")
  case "$all" in
    *' get pods '*) for pod in $PODS; do case $pod in $component-*) echo "pod/\${pod%=*}";; esac; done; return;;
    *' get deploy '*) for pod in $READY; do case " $all " in *"-\${pod%=*} "*) echo "\${pod%=*} \${pod#*=} ";; esac; done; return;;
    *.lastState*) for pod in $ENDED; do case $pod in "$POD="*) echo "\${pod#*=}";; esac; done; return;;
    *' logs -l '*) cat "$LOGS/$component"-?.log; return;;
    *' logs '*) cat "$LOGS/$POD.log"; return;;
    *' exec '*) ;;
    *) return;;
  esac
  for pod in $PODS; do case $all in *"pod/\${pod%=*} "*) port=\${pod#*=};; esac; done
  while [ "$1" != -- ]; do shift; done; shift
  if [ "$1" = partner-ingest ]; then shift; set -- node cmd/cli/main.ts "$@"; fi
  "\${@//9090/$port}"
}`;

const blockOf = (text: string): string => /^```sh\n([\s\S]*?)^```/m.exec(text)?.[1] ?? '';

/** Returns the lines that the alert's page tells to look for, at this pod if it names one. */
export async function firstCommand(
  alert: string,
  pod: string,
  { environment, slots }: ChaosWorld,
  folder: string,
): Promise<readonly string[]> {
  const text = sectionOf(alert);
  const pattern = new RegExp(/^Look for: `(.+)`$/m.exec(text)?.[1] ?? '$.');
  const ready = await Promise.all(slots.map(async (slot) => [slot.name, await isReady(slot)]));
  const counts = [...Map.groupBy(ready, ([name]) => name)].map(
    ([name, all]) => `${name}=${all.filter(([, is]) => is).length}/${all.length}`,
  );
  const env = {
    ...environment,
    PATH: process.env['PATH'],
    LOGS: folder,
    PODS: slots.map(({ label, adminPort }) => `${label}=${adminPort}`).join(' '),
    READY: counts.join(' '),
    ENDED: slots.map(({ label, ended = {} }) => `${label}=${JSON.stringify(ended)}`).join(' '),
  };
  // The label's pod is a process; its log is the slot's.
  const command = `POD=${pod.split('-').slice(0, 2).join('-')}\n${blockOf(text)}`;
  const script = `${blockOf(read('docs/runbooks/README.md'))}\n${KUBECTL}\n${command}`;
  const options = { cwd: ROOT, env, timeout: COMMAND_TIMEOUT_MS, maxBuffer: 2 ** 26 };
  const printed = await new Promise<string>((resolve) => {
    execFile('bash', ['-c', script], options, (_, stdout) => resolve(stdout));
  });
  return printed.split('\n').filter((line) => pattern.test(line));
}

/** Returns what that command prints now, of each pod if the alert names one. */
export async function firstCommands(
  alert: string,
  world: ChaosWorld,
  folder: string,
): Promise<ReadonlySet<string>> {
  const pods = sectionOf(alert).includes('$POD') ? world.slots.map(({ label }) => label) : [''];
  const lines: string[] = [];
  for (const pod of pods) lines.push(...(await firstCommand(alert, pod, world, folder)));
  return new Set(lines);
}

const sectionOf = (alert: string): string =>
  alertSections.find(({ path }) => path.endsWith(`#${alert}`))?.text ?? '';

const isReady = ({ adminPort }: Slot): Promise<boolean> =>
  fetch(`http://127.0.0.1:${adminPort}/readyz`, { signal: AbortSignal.timeout(READY_TIMEOUT_MS) })
    .then(({ ok }) => ok)
    .catch(() => false);

const TABLE = 'docs/runbooks/drill.tsv';
const NOT_MEASURED = ['not measured', '', ''];
const NOT_PLAYED = ['in make chaos only', '', ''];

const rowsOf = (table: string): [name: string, cells: string[]][] =>
  table
    .trimEnd()
    .split('\n')
    .slice(1)
    .map((row) => {
      const [name = '', ...cells] = row.split('\t');
      return [name, cells];
    });

/** It has one Redis, which its rules fit, and ordinary disks. */
export const isInDrill = ({ redis, onPowerDisks }: Fault): boolean =>
  redis === undefined && onPowerDisks === undefined;

/** The faults of the table. */
export const tabled = (): string[] => rowsOf(read(TABLE)).map(([name]) => name);

/** Remakes the rows of these faults; the others stay. */
export async function writeTable(alarms: readonly Alarm[]): Promise<void> {
  const before = new Map(rowsOf(read(TABLE)));
  const rules = new Map(alertsOf(await renderRules()).map((rule) => [rule.alert, rule]));
  const rows = faults.map((fault) => {
    const { name } = fault;
    const alarm = alarms.find(({ fault: of }) => of === name);
    const measured = alarm === undefined ? before.get(name) : cellsOf(alarm, rules);
    return [name, ...(isInDrill(fault) ? (measured ?? NOT_MEASURED) : NOT_PLAYED)];
  });
  const machine = `${cpus().length} cores and ${Math.round(totalmem() / 2 ** 30)} GB`;
  const head = [`Fault, on ${machine}`, 'Alert', 'Now', 'First command'];
  const text = [head, ...rows].map((row) => `${row.join('\t')}\n`).join('');
  writeFileSync(join(ROOT, TABLE), text);
}

function cellsOf(
  { fault, heldAfter, now, found, unexpected }: Alarm,
  rules: ReadonlyMap<string, AlertRule>,
) {
  const { raises = [] } = faults.find(({ name }) => name === fault) ?? {};
  const alerts = raises.map((alert) => {
    const { for: lasts = '', expr = '' } = rules.get(alert) ?? {};
    // Of an expression, or of a recorded one by its name.
    const windows = [...expr.matchAll(/(?:\[|rate|increase)(\d+[smhd])\b/g)].map(
      ([, one = '']) => one,
    );
    const longest = windows.toSorted((one, other) => secondsOf(other) - secondsOf(one))[0];
    const after = heldAfter[alert];
    const parts = [
      after === undefined ? 'not seen' : `${after.toFixed(0)} s`,
      ...(lasts === '' ? [] : [`+ ${lasts}`]),
      ...(longest === undefined ? [] : [`over ${longest}`]),
    ];
    return `${shortName(alert)} ${parts.join(' ')}`;
  });
  if (unexpected.length > 0) alerts.push(`(beside it ${unexpected.map(shortName).join(', ')})`);
  const commands = Object.entries(found).map(([alert, isFound]) =>
    raises.length === 1 || isFound ? (isFound ? 'yes' : 'no') : `no: ${alert}`,
  );
  return [
    alerts.join(', ') || 'none',
    now === undefined ? 'no line' : `${now.after.toFixed(0)} s: ${shortOf(now.line)}`,
    [...new Set(commands)].join(', ').replaceAll('PartnerIngest', '') || '–',
  ];
}

const shortName = (alert: string): string => alert.replace('PartnerIngest', '');

/** Without addresses and what follows the first sentence. */
const shortOf = (line: string): string =>
  line
    .replaceAll(/ at [N.]+:N\b/g, '')
    .replaceAll('\t', ' ')
    .replace(/^N of N requests of the last N minutes were answered/, 'requests answered')
    .replace(/^(.{60}\S*) .*$/s, '$1 …');

const UNIT_SECONDS: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3_600, d: 86_400 };
const secondsOf = (duration: string): number =>
  Number.parseInt(duration, 10) * (UNIT_SECONDS[duration.at(-1)!] ?? 0);
