/** Prometheus' own tool finds no fault in what a process shows, nor in what the dashboard asks. */
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { parse } from 'yaml';
import { prometheusPrograms } from '../../deploy/local/prometheus.ts';
import {
  createControllerMetrics,
  createIngestMetrics,
  createProcessorMetrics,
} from '../../internal/telemetry/metrics.ts';
import { createProcessRegistry } from '../../internal/platform/process/registry.ts';
import { dashboardPanels } from '../support/dashboard.ts';
import { one, podsOf, production, render, withValues, type Json } from '../support/chart.ts';
import { folderOfFile } from '../support/folder.ts';
import { read } from '../support/pages.ts';
import { alertsOf, renderRules, type Rules } from './rules.ts';

const folder = folderOfFile();
const file = join(folder, 'rules.json');
const { promtool } = await prometheusPrograms(console.log);

function check(words: string, input = '') {
  const options = { input, encoding: 'utf8' } as const;
  const { status, stdout, stderr } = spawnSync(promtool, words.split(' '), options);
  return { status, said: stdout + stderr };
}

test.each([
  ['ingest', createIngestMetrics],
  ['processor', createProcessorMetrics],
  ['controller', createControllerMetrics],
] as const)('promtool accepts the metrics of %s', async (name, create) => {
  const registry = createProcessRegistry(name);
  create(registry);
  expect(check('check metrics', await registry.metrics())).toEqual({ status: 0, said: '' });
});

test('without an operator: promtool accepts the file of rules, and the page scrapes the pods', async () => {
  const values = withValues(production, { 'metrics.prometheusRule.enabled': 'configMap' });
  const objects = await render(values, { release: 'partner-ingest', namespace: 'partner-ingest' });
  const { metadata, data } = one(objects, 'ConfigMap', '-alerts');
  const rules = data['partner-ingest.yaml'] as string;
  const named = await renderRules();
  expect(alertsOf(parse(rules) as Rules).map(({ alert }) => alert)).toEqual(
    alertsOf(named).map(({ alert }) => alert),
  );
  const page = read('docs/observability.md');
  expect(page).toContain(`get configmap ${metadata.name} `);
  const [, block = ''] = /^```yaml\n(rule_files: [^]*?)^```/m.exec(page) ?? [];
  const mounted = join(folder, 'partner-ingest.yaml');
  writeFileSync(mounted, rules);
  const config = join(folder, 'prometheus.yml');
  // The tool of the tests is built without discovery in Kubernetes.
  expect(block).toContain('kubernetes_sd_configs: [{ role: pod, namespaces:');
  const here = block
    .replace('/etc/partner-ingest/partner-ingest.yaml', mounted)
    .replace(/kubernetes_sd_configs: .*/, 'static_configs: [{ targets: [localhost:9090] }]');
  writeFileSync(config, here);
  expect(check(`check config ${config}`)).toEqual({
    status: 0,
    said: expect.stringMatching(/is valid prometheus config file syntax[^]*SUCCESS: \d+ rules/),
  });
  const pods = podsOf(objects).filter(({ owner }) => owner.startsWith('Deployment'));
  expect(pods).toHaveLength(4);
  for (const { metadata: ofPod, spec } of pods) {
    const name = ofPod['labels']['app.kubernetes.io/name'] as string;
    const ports = (spec['containers'][0].ports as Json[]).map((port) => `${name};${port['name']}`);
    expect(ports).toContain(/^ *regex: (\S+;\S+)$/m.exec(block)?.[1]);
  }
});

test('promtool accepts the queries of the dashboard', () => {
  const queries = dashboardPanels.flatMap(({ queries: own }) => own);
  const rules = queries.map((query, index) => ({
    record: `panel:query:${index}`,
    // Grafana fills in its variables.
    expr: query
      .replaceAll(/\$__rate_interval|\$__range/g, '1m')
      .replaceAll('$slo', '99.9')
      .replaceAll(/\$\w+/g, 'any'),
  }));
  writeFileSync(file, JSON.stringify({ groups: [{ name: 'board', rules }] }));
  expect(check(`check rules ${file}`)).toEqual({
    status: 0,
    said: expect.stringContaining(`SUCCESS: ${rules.length} rules found`),
  });
});
