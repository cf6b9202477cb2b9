/** Runs promtool's unit tests for each alert on the rules that Helm renders. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from '@jest/globals';
import { parse, stringify } from 'yaml';
import { prometheusPrograms } from '../../deploy/local/prometheus.ts';
import { defined } from '../../internal/platform/process/defined.ts';
import { kinds } from '../../internal/self-audit/rules.ts';
import { endOf } from '../../tools/program.ts';
import { folderOfFile } from '../support/folder.ts';
import { alertSections, read } from '../support/pages.ts';
import { alertsOf, NAMESPACE, renderRules, ruleFile, type AlertRule, type Rules } from './rules.ts';

/** Less garbage collection saves a third of the processor time of the two promtools. */
const THRIFTY = { ...process.env, GOGC: '400', GOMAXPROCS: '1' };
const TOOL_TIMEOUT_MS = 600_000;

const [{ promtool }, rules] = await Promise.all([prometheusPrograms(console.log), renderRules()]);

/** Values of series from step to step, in promtool's notation. */
type SeriesValues = Readonly<Record<string, string>>;
interface Firing {
  readonly series: SeriesValues;
  readonly says: string;
  /** Labels besides name, severity and namespace. */
  readonly labels?: Readonly<Record<string, string>>;
  /** The severity, for a rule with two of them. */
  readonly severity?: 'critical' | 'warning';
}
interface Cases {
  readonly healthy: SeriesValues;
  readonly cases: Readonly<
    Record<
      string,
      {
        readonly fires: Readonly<Record<string, Firing>>;
        readonly quiet: Readonly<Record<string, SeriesValues>>;
      }
    >
  >;
}
interface Replays {
  readonly healthy: SeriesValues;
  readonly cases: Readonly<
    Record<
      string,
      {
        /** Of "name severity" the ranges of minutes, such as `61-61 100-180`. */
        readonly fires: Readonly<Record<string, string>>;
        readonly series: SeriesValues;
      }
    >
  >;
}
const { minutes, days, replays } = parse(read('test/chart/alert-cases.yaml'), {
  merge: true,
}) as { readonly minutes: Cases; readonly days: Cases; readonly replays: Replays };

interface Scale extends Cases {
  readonly name: string;
  readonly at: string;
  readonly interval: string;
  readonly evaluatedEach: string;
  readonly groups: Rules['groups'];
  /** Every series has one of these labels; the first cluster is healthy, the last as the case says. */
  readonly clusters?: readonly string[];
}
const SHORT: Scale = {
  ...minutes,
  name: 'short',
  at: '90m',
  interval: '1m',
  evaluatedEach: '1m',
  groups: rules.groups,
};
/** Cases that look a week back have larger steps, and only the rules of the promise. */
const LONG: Scale = {
  ...days,
  name: 'long',
  at: '11640m',
  interval: '15m',
  evaluatedEach: '30m',
  groups: rules.groups.filter(({ name }) => name === 'partner-ingest.promise'),
};
/** One Thanos or Mimir holds two clusters: what is wrong in one rings for that one alone. */
const TWO: Scale = {
  ...SHORT,
  name: 'two clusters',
  groups: (await renderRules({ 'metrics.prometheusRule.groupLabels': ['cluster'] })).groups,
  clusters: ['a', 'b'],
};
const folder = folderOfFile();
await writeFile(join(folder, 'rules.yaml'), ruleFile(rules));

/** Returns promtool's message, or an empty text if it found no fault. */
async function tool(...args: string[]): Promise<string> {
  const options = { timeoutMs: TOOL_TIMEOUT_MS, env: THRIFTY };
  const { code, signal, out, err } = await endOf(promtool, args, options);
  return code === 0 ? '' : `${out}${err}${signal ?? ''}`;
}

const inNamespace = (series: string): string => series.replace('{', `{namespace="${NAMESPACE}",`);

const filled = (text: string, labels: Readonly<Record<string, string>>): string =>
  text.replaceAll(/\{\{ \$labels\.(\w+) \}\}/g, (_, label: string) => labels[label] ?? '');

/** Names unhealthy series, and whether they fire their alert. */
interface Named {
  readonly name: string;
  readonly alert: string;
  readonly series: SeriesValues;
  readonly fires?: Firing;
}

/** Writes promtool's test: of all rules, only `alert` fires. */
async function writeTest(scale: Scale, { name, alert, series, fires }: Named): Promise<string> {
  const { at, interval } = scale;
  const wanted = alertsOf(scale).map((rule: AlertRule) => {
    if (fires === undefined || rule.alert !== alert)
      return { eval_time: at, alertname: rule.alert, exp_alerts: [] };
    const severity = fires.severity ?? rule.labels['severity'] ?? '';
    const cluster = scale.clusters?.at(-1);
    const labels = { namespace: NAMESPACE, ...fires.labels, severity, ...defined({ cluster }) };
    const said = Object.entries(rule.annotations).map(([key, text]) => [key, filled(text, labels)]);
    const annotations = { ...Object.fromEntries(said), description: fires.says } as object;
    const expected = { exp_labels: labels, exp_annotations: annotations };
    return { eval_time: at, alertname: rule.alert, exp_alerts: [expected] };
  });
  const clusters = scale.clusters?.map((cluster) => `cluster="${cluster}",`) ?? [''];
  const inputs = clusters.flatMap((cluster, index, { length }) =>
    scraped({ ...scale.healthy, ...(index === length - 1 ? series : {}) }, cluster),
  );
  return writeFileOf(scale, { name, interval, input_series: inputs, alert_rule_test: wanted });
}

/** Each pod is scraped by two jobs. */
const scraped = (all: SeriesValues, cluster = ''): object[] =>
  Object.entries(all).flatMap(([one, values]) =>
    ['first', 'second'].map((job) => ({
      series: inNamespace(one).replace('{', `{job="${job}",${cluster}`),
      values,
    })),
  );

let written = 0;
async function writeFileOf(
  { name, evaluatedEach }: Pick<Scale, 'name' | 'evaluatedEach'>,
  one: object,
): Promise<string> {
  const file = join(folder, `${name}-${(written += 1)}.yaml`);
  const rule_files = [join(folder, `${name}-rules.yaml`)];
  await writeFile(
    file,
    stringify({ rule_files, evaluation_interval: evaluatedEach, tests: [one] }),
  );
  return file;
}

const REPLAYED_MINUTES = 180;
const FIRING = 'max by (alertname, severity) (ALERTS{alertstate="firing"})';

/** Writes promtool's test: at each minute exactly these alerts fire. */
async function writeReplay([name, { fires, series }]: [string, Replays['cases'][string]]) {
  const ranges = Object.entries(fires).flatMap(([alert, all]) => {
    const [alertname, severity] = alert.split(' ');
    const labels = `{alertname="PartnerIngest${alertname}",severity="${severity}"}`;
    return all.split(' ').map((range) => {
      const [from = 0, until = 0] = range.split('-').map(Number);
      return { from, until, sample: { labels, value: 1 } };
    });
  });
  const asked = Array.from({ length: REPLAYED_MINUTES + 1 }, (_, minute) => ({
    // promtool prints the expression of a failure, and not the name of its test.
    expr: `${FIRING} # ${name}`,
    eval_time: `${minute}m`,
    exp_samples: ranges
      .filter(({ from, until }) => minute >= from && minute <= until)
      .map(({ sample }) => sample),
  }));
  const inputs = scraped({ ...replays.healthy, ...series });
  return writeFileOf(SHORT, {
    name,
    interval: '1m',
    input_series: inputs,
    promql_expr_test: asked,
  });
}

const HEALTHY = 'a healthy system';
const namedOf = ({ cases }: Cases): Named[] =>
  Object.entries(cases).flatMap(([alert, { fires, quiet }]) => [
    ...Object.entries(fires).map(([when, one]) => ({
      name: `${alert} fires, and no other does: ${when}`,
      alert,
      series: one.series,
      fires: one,
    })),
    ...Object.entries(quiet).map(([when, series]) => ({
      name: `${alert} is near, and none fires: ${when}`,
      alert,
      series,
    })),
  ]);
const [short, long] = [namedOf(SHORT), namedOf(LONG)];
const two = short
  .filter(({ alert, fires }, index) =>
    alert.endsWith('Absent') ? fires !== undefined : alert !== short[index - 1]?.alert,
  )
  .map((one) => ({ ...one, name: `in one cluster of two, ${one.name}` }));

/** Runs all tests in one promtool; returns the failures by name. */
async function runAll(
  scale: Scale,
  tests: readonly Named[],
  replayed: Replays['cases'] = {},
): Promise<[string, string][]> {
  await writeFile(join(folder, `${scale.name}-rules.yaml`), ruleFile({ groups: scale.groups }));
  const files = await Promise.all([
    ...tests.map((one) => writeTest(scale, one)),
    ...Object.entries(replayed).map(writeReplay),
  ]);
  const said = await tool('test', 'rules', ...files);
  const faults = said
    .split(/^ *FAILED:$/m)
    .slice(1)
    .map((part): [string, string] => {
      const [, name, replay] = /^ *name: (.*?),$|# (.*?)", time/m.exec(part) ?? [];
      return [name ?? replay ?? HEALTHY, part];
    });
  // promtool failed for another reason.
  return said !== '' && faults.length === 0 ? [[HEALTHY, said]] : faults;
}

describe('the alert rules', () => {
  let faults: ReadonlyMap<string, string>;
  beforeAll(async () => {
    const healthySystem = { name: HEALTHY, alert: '', series: {} };
    const runs = [
      runAll(SHORT, [healthySystem, ...short], replays.cases),
      runAll(LONG, long),
      runAll(TWO, [{ ...healthySystem, name: `two of: ${HEALTHY}` }, ...two]),
    ];
    faults = new Map((await Promise.all(runs)).flat());
  });

  test('promtool accepts the rules', async () => {
    expect(await tool('check', 'rules', join(folder, 'rules.yaml'))).toBe('');
  });

  test('every alert has a case, and every case has an alert', () => {
    expect(new Set(Object.keys(SHORT.cases))).toEqual(
      new Set(alertsOf(rules).map(({ alert }) => alert)),
    );
    const notices = Object.entries(kinds).filter(([, { weight }]) => weight === 'notice');
    expect(Object.keys(SHORT.cases['PartnerIngestAuditFindings']!.quiet['notices']!)).toEqual(
      notices.map(([kind]) => `partner_ingest_audit_findings{kind="${kind}",pod="controller-1"}`),
    );
  });

  const names = [...short, ...long, ...two].map(({ name }) => name);
  test.each([HEALTHY, `two of: ${HEALTHY}`, ...names])('%s', (name) => {
    expect(faults.get(name)).toBeUndefined();
  });

  test.each(Object.keys(replays.cases))('replayed at each minute: %s', (name) => {
    expect(faults.get(name)).toBeUndefined();
  });

  test('values can disable alerts, label them and change their runbooks', async () => {
    const alerts = alertsOf(
      await renderRules({
        'metrics.prometheusRule.disabled': ['PartnerIngestDeadLetters'],
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
    const apart = await renderRules({ 'metrics.matchLabels': { cluster: 'a' } });
    for (const { expr, alert = expr } of apart.groups.flatMap(
      (group) => group.rules as AlertRule[],
    )) {
      const selectors = expr.match(/namespace="[^"]*"/g)?.length ?? 0;
      expect([alert, expr.match(/namespace="[^"]*",cluster="a"/g)?.length]).toEqual([
        alert,
        selectors,
      ]);
      expect([alert, /\((namespace)(?!, cluster\b)/.exec(expr)]).toEqual([alert, null]);
    }
    const bare = alertsOf(await renderRules({ 'metrics.prometheusRule.runbookBaseUrl': '' }));
    expect(bare.filter(({ annotations }) => 'runbook_url' in annotations)).toEqual([]);
  });
});
