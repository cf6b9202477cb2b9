/** What an operator sees of a fault: the line on Now, and the first command of an alert's page. */
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { format } from 'prettier';
import { Activity } from '../../internal/console/activity.ts';
import { nowView } from '../../internal/console/now.ts';
import { readPods } from '../../internal/console/readings.ts';
import { KeyStore } from '../../internal/partner/key-store.ts';
import { SupportQueries } from '../../internal/submission/support-queries.ts';
import { deadLettersView } from '../../internal/view/search.ts';
import { ROOT } from '../../tools/root.ts';
import { alertsOf, renderRules, type AlertRule } from '../chart/rules.ts';
import { alertSections, read } from '../support/pages.ts';
import { faults } from './list.ts';
import type { Alarm } from './watch.ts';
import type { ChaosWorld } from './world.ts';

const COMMAND_TIMEOUT_MS = 60_000;

/** Returns what Now says, without its numbers. */
export function nowOf({ db, slots }: ChaosWorld): () => Promise<readonly string[]> {
  const clock = { now: () => new Date(), monotonicMs: () => performance.now() };
  const activity = new Activity(clock.now());
  const keys = new KeyStore({ db, clock });
  const submissions = new SupportQueries(db);
  return async () => {
    activity.add(
      await readPods(slots.map(({ adminPort }) => `http://127.0.0.1:${adminPort}`)),
      clock.now(),
    );
    try {
      const dead = await deadLettersView({ submissions }, clock.now(), COMMAND_TIMEOUT_MS);
      const secrets = await keys.problems.list();
      activity.stored = {
        partners: [],
        turnedAway: { counts: [], recorded: [] },
        dead,
        secrets,
        findings: [],
        putAside: 0,
        at: clock.now(),
      };
    } catch {
      activity.stored = { ...activity.stored, fault: 'MongoDB cannot be read' };
    }
    const { problems } = nowView(activity, clock.now());
    return problems.map(({ what }) => what.replaceAll(/\d+/g, 'N'));
  };
}

/** A kubectl with the run's processes as pods; the commands of an exec run here. */
const KUBECTL = `kubectl() {
  local all="$*" component pod port=9090
  component=$(sed -n 's/.*component=\\([a-z]*\\).*/\\1/p' <<< "$all")
  case "$all" in
    *' get pods '*) for pod in $PODS; do case $pod in $component-*) echo "pod/\${pod%=*}";; esac; done; return;;
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

/** Returns the lines that the alert's page tells to look for. */
export async function firstCommand(
  alert: string,
  pod: string,
  { environment, slots }: ChaosWorld,
  folder: string,
): Promise<readonly string[]> {
  const { text = '' } = alertSections.find(({ path }) => path.endsWith(`#${alert}`)) ?? {};
  const pattern = new RegExp(/^Look for: `(.+)`$/m.exec(text)?.[1] ?? '$.');
  // The label's pod is a process; its log is the slot's.
  const env = {
    ...environment,
    PATH: process.env['PATH'],
    LOGS: folder,
    PODS: slots.map(({ label, adminPort }) => `${label}=${adminPort}`).join(' '),
  };
  const command = `POD=${pod.split('-').slice(0, 2).join('-')}\n${blockOf(text)}`;
  const script = `${blockOf(read('docs/runbooks/README.md'))}\n${KUBECTL}\n${command}`;
  const options = { cwd: ROOT, env, timeout: COMMAND_TIMEOUT_MS, maxBuffer: 2 ** 26 };
  const printed = await new Promise<string>((resolve) => {
    execFile('bash', ['-c', script], options, (_, stdout) => resolve(stdout));
  });
  return printed.split('\n').filter((line) => pattern.test(line));
}

const PAGE = 'docs/runbooks/README.md';
const HEAD = '| Fault | Alert | Now | First command |';
const NOT_MEASURED = 'not measured';

const rowsOf = (page: string): [name: string, cells: string[]][] =>
  [...page.matchAll(/^\| ([a-z][a-z0-9-]*) +\|(.*)\|$/gm)].map(([, name = '', rest = '']) => [
    name,
    rest.split('|').map((cell) => cell.trim()),
  ]);

/** The faults of the table. */
export const tabled = (): string[] => rowsOf(read(PAGE)).map(([name]) => name);

/** Remakes the rows of these faults; the others stay. */
export async function writeTable(alarms: readonly Alarm[]): Promise<void> {
  const page = read(PAGE);
  const before = new Map(rowsOf(page));
  const rules = new Map(alertsOf(await renderRules()).map((rule) => [rule.alert, rule]));
  const rows = faults.map(({ name }) => {
    const alarm = alarms.find(({ fault }) => fault === name);
    const cells = alarm === undefined ? before.get(name) : cellsOf(alarm, rules);
    return `| ${[name, ...(cells ?? [NOT_MEASURED, '', ''])].join(' | ')} |`;
  });
  const table = [HEAD, '| --- | --- | --- | --- |', ...rows].join('\n');
  const made = page.replace(/^\| Fault [^]*?(?=\n\n|\n?$(?![^]))/m, () => table);
  const config = JSON.parse(read('.prettierrc.json')) as object;
  const formatted = await format(made, { ...config, parser: 'markdown', proseWrap: 'preserve' });
  writeFileSync(join(ROOT, PAGE), formatted);
}

function cellsOf({ fault, heldAfter, now, found }: Alarm, rules: ReadonlyMap<string, AlertRule>) {
  const { raises = [] } = faults.find(({ name }) => name === fault) ?? {};
  const alerts = raises.map((alert) => {
    const { for: lasts = '', expr = '' } = rules.get(alert) ?? {};
    const windows = [...expr.matchAll(/\[(\d+[smhd])\]/g)].map(([, one = '']) => one);
    const longest = windows.toSorted((one, other) => secondsOf(other) - secondsOf(one))[0];
    const after = heldAfter[alert];
    const parts = [
      after === undefined ? 'not seen' : `${after.toFixed(0)} s`,
      ...(lasts === '' ? [] : [`+ ${lasts}`]),
      ...(longest === undefined ? [] : [`over ${longest}`]),
    ];
    return `${alert.replace('PartnerIngest', '')} ${parts.join(' ')}`;
  });
  const commands = Object.entries(found).map(([alert, isFound]) =>
    raises.length === 1 || isFound ? (isFound ? 'yes' : 'no') : `no: ${alert}`,
  );
  return [
    alerts.join(', ') || 'none',
    now === undefined ? 'no line' : `${now.toFixed(0)} s`,
    [...new Set(commands)].join(', ').replaceAll('PartnerIngest', '') || '–',
  ];
}

const UNIT_SECONDS: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3_600, d: 86_400 };
const secondsOf = (duration: string): number =>
  Number.parseInt(duration, 10) * (UNIT_SECONDS[duration.at(-1)!] ?? 0);
