/** Metrics, dashboard, alert rules and runbooks name the same things, in both directions. */
import { readdirSync, readFileSync } from 'node:fs';
import { expect, test } from '@jest/globals';
import { parse } from 'yaml';
import { ROOT } from '../../tools/root.ts';
import { faults } from '../faults/list.ts';
import { tabled } from '../faults/operator.ts';
import { dashboardPanels } from '../support/dashboard.ts';
import { alertSections } from '../support/pages.ts';
import { missingIn, ours, selectorsIn } from '../support/promql.ts';

const CHART = `${ROOT}charts/partner-ingest/`;

interface Alert {
  readonly alert: string;
  readonly expr: string;
  readonly labels: { readonly severity: string };
  readonly annotations: { readonly command: string; readonly shows: string };
}
// The template itself; names need no rendered values.
const { groups } = parse(readFileSync(`${CHART}files/alerts.yaml`, 'utf8')) as {
  groups: { name: string; rules: Alert[] }[];
};
const rules = groups.flatMap((group) => group.rules);
const alerts = rules.filter(({ alert }) => alert !== undefined).map(({ alert }) => alert);

const faultsIn = (
  expressions: readonly { readonly where: string; readonly expression: string }[],
): string[] =>
  expressions.flatMap(({ where, expression }) =>
    missingIn(expression).map((what) => `${where}: no ${what}`),
  );

test('the dashboard uses only metrics that exist, and all of ours', () => {
  const queries = dashboardPanels.flatMap(({ title, queries: own }) =>
    own.map((expression) => ({ where: title, expression })),
  );
  expect(faultsIn(queries)).toEqual([]);
  const shown = new Set(
    queries.flatMap(({ expression }) => selectorsIn(expression).map(({ metric }) => metric)),
  );
  expect([...ours.keys()].filter((name) => !shown.has(name))).toEqual([]);
});

test('each panel of the dashboard has a query, a unit and a description', () => {
  const bare = dashboardPanels.filter(
    ({ queries, unit, description }) => queries.length === 0 || unit === '' || description === '',
  );
  expect(bare).toEqual([]);
});

test('the alert rules and the autoscaler use only metrics that exist', () => {
  const expressions = rules.map(({ alert, expr }) => ({
    where: alert ?? 'a recording rule',
    expression: expr,
  }));
  expect(
    faultsIn(
      expressions.map((one) => ({
        ...one,
        expression: one.expression.replaceAll(/\$\((?:in|ours)\),?/g, ''),
      })),
    ),
  ).toEqual([]);
  const templates = readdirSync(`${CHART}templates`, { recursive: true, encoding: 'utf8' }).filter(
    (name) => /\.(yaml|tpl|txt)$/.test(name),
  );
  const inTemplates = templates.map((name) => ({
    where: name,
    expression: readFileSync(`${CHART}templates/${name}`, 'utf8').replaceAll('\\"', '"'),
  }));
  expect(faultsIn(inTemplates)).toEqual([]);
});

test('what is summed or counted takes each pod once, although two jobs may scrape it', () => {
  const expressions = [
    ...rules.map(({ expr }) => expr),
    ...dashboardPanels.flatMap(({ queries }) => queries),
  ];
  const plain = expressions.filter((expression) =>
    /\b(?:sum|count)(?: by \([^)]*\))? ?\((?!max by \([^)]*\bpod\b|ALERTS)/.test(expression),
  );
  expect(plain).toEqual([]);
});

test('the rules have only placeholders that the template fills in', () => {
  const text = readFileSync(`${CHART}files/alerts.yaml`, 'utf8').replaceAll(/^\s*#.*$/gm, '');
  const used = new Set([...text.matchAll(/\$\((\w+)\)/g)].map(([, name]) => String(name)));
  expect([...used].toSorted()).toEqual(
    ['budget', 'cli', 'in', 'kubectl', 'metrics', 'name', 'ours', 'window'].toSorted(),
  );
});

test('alerts and panels are within their bounds', () => {
  expect(alerts.length).toBeLessThanOrEqual(28);
  expect(dashboardPanels.length).toBeLessThanOrEqual(40);
});

test('each tile of the first row leads to a panel', () => {
  const tiles = dashboardPanels.filter(({ type }) => type === 'stat');
  expect(tiles.slice(0, 6).map(({ title }) => title)).toContain('E-mails now');
  for (const { title, leadsTo } of tiles)
    expect([title, dashboardPanels.map(({ id }) => id)]).toEqual([
      title,
      expect.arrayContaining([leadsTo]),
    ]);
});

test('the list of faults raises exactly the alerts that exist', () => {
  const raised = faults.flatMap(({ raises }) => raises);
  expect([...new Set(raised)].toSorted()).toEqual(alerts.toSorted());
  for (const { may = [] } of faults) expect(alerts).toEqual(expect.arrayContaining([...may]));
});

test('the page of runbooks has a row for each fault', () => {
  expect(tabled()).toEqual(faults.map(({ name }) => name));
});

test('an alert is critical exactly if its section wakes someone', () => {
  for (const { alert, labels } of rules.filter((rule) => rule.alert !== undefined)) {
    const { text = '' } = alertSections.find(({ path }) => path.endsWith(`#${alert}`)) ?? {};
    const [, wakes = ''] = /^\*\*Get up\*\*: ([^]*)$/m.exec(text) ?? [];
    expect({
      alert,
      critical: wakes.startsWith('at once'),
      warning: /^no\b|\bin\s+working\s+hours/.test(wakes),
    }).toEqual({
      alert,
      critical: labels.severity.includes('critical'),
      warning: labels.severity.includes('warning'),
    });
  }
});

test('each alert has the first command of its section, and what it shows', () => {
  for (const { alert, annotations } of rules.filter((rule) => rule.alert !== undefined)) {
    const { text = '' } = alertSections.find(({ path }) => path.endsWith(`#${alert}`)) ?? {};
    const asked = annotations.command.match(/'[^']*'|(?<=\$\(cli\) )[a-z].*/g) ?? [];
    expect([alert, asked.filter((one) => !text.includes(one))]).toEqual([alert, []]);
    expect(annotations.command).toMatch(/^(\$\((kubectl|cli)\)|kubectl) /);
    expect(annotations.shows).toMatch(/\.$/);
  }
});

test('every alert has a section on the page of its group, and every section an alert', () => {
  const wanted = groups.flatMap(({ name, rules: own }) =>
    own
      .filter(({ alert }) => alert !== undefined)
      .map(({ alert }) => `docs/runbooks/${name.replace('partner-ingest.', '')}.md#${alert}`),
  );
  expect(alertSections.map(({ path }) => path).toSorted()).toEqual(wanted.toSorted());
  const index = readFileSync(`${ROOT}docs/runbooks/README.md`, 'utf8');
  expect(alerts.filter((alert) => !index.includes(`#${alert.toLowerCase()})`))).toEqual([]);
});
