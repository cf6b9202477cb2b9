/**
 * Every alert fires when it should and only then: promtool's own tests, on the rules as Helm
 * renders them.
 */
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { stringify } from 'yaml';
import { prometheusPrograms } from '../../deploy/local/prometheus.ts';
import {
  cases,
  healthy,
  healthyForAWeek,
  longCases,
  type Firing,
  type SeriesValues,
} from './alert-cases.ts';
import { alertSections } from '../support/pages.ts';
import { selectorsIn } from '../support/promql.ts';
import { alertsOf, NAMESPACE, renderRules, ruleFile, type AlertRule, type Rules } from './rules.ts';

const EVALUATED_AT = '90m';
/**
 * Less collecting of garbage, and on one core: a third less processor time. Two of them run at a
 * time.
 */
const THRIFTY = { ...process.env, GOGC: '400', GOMAXPROCS: '1' };
const TOOL_TIMEOUT_MS = 300_000;

const [{ promtool }, rules] = await Promise.all([prometheusPrograms(console.log), renderRules()]);
interface Scale {
  readonly at: string;
  readonly interval: string;
  readonly evaluatedEach: string;
  readonly of: Rules;
}
/**
 * Cases that look a week back: eight days and two hours, in larger steps, and only the rules about
 * the promise.
 */
const LONG: Scale = {
  at: '11640m',
  interval: '15m',
  evaluatedEach: '30m',
  of: { groups: rules.groups.filter(({ name }) => name === 'partner-ingest.promise') },
};
const SHORT: Scale = { at: EVALUATED_AT, interval: '1m', evaluatedEach: '1m', of: rules };
let folder: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'alerts-'));
  await writeFile(join(folder, 'rules.yaml'), ruleFile(rules));
});
afterAll(() => rm(folder, { recursive: true }));

/** Promtool's words when it found a fault; empty when all is well. */
async function tool(...args: string[]): Promise<string> {
  try {
    await promisify(execFile)(promtool, args, {
      timeout: TOOL_TIMEOUT_MS,
      maxBuffer: 2 ** 24,
      env: THRIFTY,
    });
    return '';
  } catch (error) {
    const { stdout, stderr } = error as { stdout?: string; stderr?: string };
    return `${stdout ?? ''}${stderr ?? ''}` || String(error);
  }
}

/** Puts the namespace into a series' labels. */
const inNamespace = (series: string): string => series.replace('{', `{namespace="${NAMESPACE}",`);

const filled = (text: string, labels: Readonly<Record<string, string>>): string =>
  text.replaceAll(/\{\{ \$labels\.(\w+) \}\}/g, (_, label: string) => labels[label] ?? '');

interface Expected {
  readonly alert: string;
  /** Where the rule has one of two, by its value. */
  readonly severity?: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly says: string;
}

type Rule = Rules['groups'][number]['rules'][number];
const nameOf = (rule: Rule): string => ('alert' in rule ? rule.alert : rule.record);
const waits = (rule: Rule): boolean => 'for' in rule;

/** Whether a rule reads this series: it fits a selector. */
function reads({ expr }: Rule, series: string): boolean {
  const [given] = selectorsIn(inNamespace(series));
  return selectorsIn(expr).some(
    ({ metric, matchers }) =>
      metric === given?.metric &&
      matchers.every(({ label, operator, value }) => {
        const has = given.matchers.find((one) => one.label === label)?.value ?? '';
        const same = operator.includes('~')
          ? new RegExp(`^(?:${value})$`).test(has)
          : has === value;
        return same !== operator.startsWith('!');
      }),
  );
}

/** `start`, all that `leads` from one of these to another, and so on. */
function closure(
  start: Iterable<Rule>,
  all: readonly Rule[],
  leads: (from: Rule, to: Rule) => boolean,
): Set<Rule> {
  const found = new Set(start);
  // What is added on the way is visited, too.
  for (const one of found) for (const rule of all) if (leads(one, rule)) found.add(rule);
  return found;
}

/**
 * The rule of `alert` and all that these series can change. Every other rule says what it says of a
 * healthy system, and promtool takes its time for each.
 */
function changedBy(series: SeriesValues, alert: string, all: readonly Rule[]): ReadonlySet<Rule> {
  const first = all.filter(
    (rule) => nameOf(rule) === alert || Object.keys(series).some((one) => reads(rule, one)),
  );
  return closure(first, all, (from, to) => to.expr.includes(nameOf(from)));
}

interface ToolTest {
  readonly rules: Rules;
  readonly asked: object;
}

/**
 * Promtool's tests of the alert that `series` is about: of all that it can change `expected` fires,
 * and no other. Rules with a `for` and those without are apart, each with all they read: only the
 * former need more than one evaluation.
 */
function toolTests(
  name: string,
  {
    healthy: base,
    series,
    of: about,
  }: { healthy: SeriesValues; series?: SeriesValues; of?: string },
  expected?: Expected,
  { at, interval, of: { groups } } = SHORT,
): ToolTest[] {
  const all = groups.flatMap((group) => group.rules);
  const concerned =
    series === undefined || about === undefined ? all : changedBy(series, about, all);
  const inputs = Object.entries({ ...base, ...series }).map(([one, values]) => ({
    series: inNamespace(one),
    values,
  }));
  return [...Map.groupBy(concerned, waits).values()].map((some) => {
    const needed = closure(some, all, (from, to) => from.expr.includes(nameOf(to)));
    const those = groups.map((group) => ({
      ...group,
      rules: group.rules.filter((one) => needed.has(one)),
    }));
    const alertRuleTest = alertsOf({ groups: those }).map((rule: AlertRule) => {
      if (rule.alert !== expected?.alert)
        return { eval_time: at, alertname: rule.alert, exp_alerts: [] };
      const severity = expected.severity ?? rule.labels['severity'] ?? '';
      const labels = { namespace: NAMESPACE, ...expected.labels, severity };
      const { summary = '', runbook_url } = rule.annotations;
      const annotations = {
        summary: filled(summary, labels),
        description: expected.says,
        runbook_url,
      };
      const alert = { exp_labels: labels, exp_annotations: annotations };
      return { eval_time: at, alertname: rule.alert, exp_alerts: [alert] };
    });
    return {
      rules: { groups: those },
      asked: { name, interval, input_series: inputs, alert_rule_test: alertRuleTest },
    };
  });
}

const HEALTHY = 'a healthy system';
const fires = (alert: string): string => `${alert} fires`;
const quiet = (alert: string): string => `${alert} is near`;

interface Named {
  readonly alert: string;
  readonly name: string;
}

const firing: readonly (Named & Firing)[] = cases.flatMap((one) => [
  { ...one, name: fires(one.alert) },
  ...Object.entries(one.alsoFires ?? {}).map(([when, other]) => ({
    ...other,
    alert: one.alert,
    name: `${fires(one.alert)}: ${when}`,
  })),
]);
const silent: readonly (Named & { readonly series: SeriesValues })[] = cases.flatMap(
  ({ alert, ...one }) => [
    { alert, name: quiet(alert), series: one.quiet },
    ...Object.entries(one.alsoQuiet ?? {}).map(([when, series]) => ({
      alert,
      name: `${quiet(alert)}: ${when}`,
      series,
    })),
  ],
);

const long = longCases.map((one) => ({ ...one, name: `${one.alert}: ${one.name}` }));

/** All tests in two runs of promtool; what it says of each that failed, by name. */
async function runAll(): Promise<ReadonlyMap<string, string>> {
  const tests = [
    ...toolTests(HEALTHY, { healthy }),
    ...firing.flatMap(({ alert, name, fires: series, labels = {}, says, severity }) =>
      toolTests(
        name,
        { healthy, series, of: alert },
        { alert, labels, says, ...(severity === undefined ? {} : { severity }) },
      ),
    ),
    ...silent.flatMap(({ alert, name, series }) => toolTests(name, { healthy, series, of: alert })),
  ];
  const ofAWeek = long.flatMap(({ alert, name, series, says }) =>
    toolTests(
      name,
      { healthy: healthyForAWeek, series, of: alert },
      says === undefined ? undefined : { alert, labels: {}, says },
      LONG,
    ),
  );
  const runs = [runTests('short', SHORT, tests), runTests('long', LONG, ofAWeek)];
  return new Map((await Promise.all(runs)).flatMap((faults) => [...faults]));
}

/** Those on the same rules share a file. */
async function runTests(scale: string, { at, evaluatedEach }: Scale, tests: readonly ToolTest[]) {
  const byRules = Map.groupBy(tests, (one) => ruleFile(one.rules));
  const files = [...byRules].map(async ([text, sharing], index) => {
    const ruleName = `${scale}-${index}-rules.yaml`;
    await writeFile(join(folder, ruleName), text);
    const file = join(folder, `${scale}-${index}.yaml`);
    const all = {
      rule_files: [ruleName],
      evaluation_interval: sharing.some(({ rules: { groups } }) =>
        groups.some((group) => group.rules.some(waits)),
      )
        ? evaluatedEach
        : at,
      tests: sharing.map(({ asked }) => asked),
    };
    await writeFile(file, stringify(all));
    return file;
  });
  const said = await tool('test', 'rules', ...(await Promise.all(files)));
  const parts = said.split(/^ *name: (.*?),$/m).slice(1);
  const faults = new Map<string, string>();
  for (let part = 0; part < parts.length; part += 2) {
    const failed = parts[part] ?? '';
    faults.set(failed, (faults.get(failed) ?? '') + (parts[part + 1] ?? ''));
  }
  // Something is wrong beside the tests.
  return said !== '' && faults.size === 0 ? new Map([[HEALTHY, said]]) : faults;
}

describe('the alert rules', () => {
  let faults: ReadonlyMap<string, string>;
  beforeAll(async () => {
    faults = await runAll();
  }, TOOL_TIMEOUT_MS);

  test('promtool finds no fault in the rules', async () => {
    expect(await tool('check', 'rules', join(folder, 'rules.yaml'))).toBe('');
  });

  test('every alert has cases, and every case an alert', () => {
    expect([...new Set([...cases, ...longCases].map(({ alert }) => alert))].toSorted()).toEqual(
      alertsOf(rules)
        .map(({ alert }) => alert)
        .toSorted(),
    );
  });

  test('a healthy system has no alert', () => {
    expect(faults.get(HEALTHY)).toBeUndefined();
  });

  test.each(firing)('$name, and no other does', ({ name }) => {
    expect(faults.get(name)).toBeUndefined();
  });

  test.each(silent)('$name, and none fires', ({ name }) => {
    expect(faults.get(name)).toBeUndefined();
  });

  test.each(long)('$name, and no other fires', ({ name }) => {
    expect(faults.get(name)).toBeUndefined();
  });

  test('alerts can be left out, given labels, and sent to other runbooks', async () => {
    const alerts = alertsOf(
      await renderRules({
        'metrics.prometheusRule.disabled[0]': 'PartnerIngestDeadLetters',
        'metrics.prometheusRule.alertLabels.team': 'ingest',
        'metrics.prometheusRule.alertLabels.severity': 'page',
        'metrics.prometheusRule.runbookBaseUrl': 'https://runbooks.example/ingest/',
        'metrics.prometheusRule.sloPercent': 99.95,
      }),
    );
    expect(alerts).toHaveLength(alertsOf(rules).length - 1);
    expect(
      new Set(alerts.map((rule) => `${rule.labels['team']} ${rule.labels['severity']}`)),
    ).toEqual(new Set(['ingest page']));
    for (const { alert, annotations } of alerts) {
      const { path = '' } =
        alertSections.find((section) => section.path.endsWith(`#${alert}`)) ?? {};
      const section = path.toLowerCase().replace('docs/runbooks/', '');
      expect(annotations['runbook_url']).toBe(`https://runbooks.example/ingest/${section}`);
    }
    expect(alerts.find(({ alert }) => alert === 'PartnerIngestPromiseBurnsFast')?.expr).toContain(
      '14.4 * 0.0005',
    );
    const bare = alertsOf(await renderRules({ 'metrics.prometheusRule.runbookBaseUrl': '' }));
    expect(bare.filter(({ annotations }) => 'runbook_url' in annotations)).toEqual([]);
  });
});
