/** Prometheus' own tool finds no fault in what a process shows, nor in what the dashboard asks. */
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { prometheusPrograms } from '../../deploy/local/prometheus.ts';
import {
  createControllerMetrics,
  createIngestMetrics,
  createProcessorMetrics,
} from '../../internal/telemetry/metrics.ts';
import { createProcessRegistry } from '../../internal/platform/process/registry.ts';
import { dashboardPanels } from '../support/dashboard.ts';
import { folderOfFile } from '../support/folder.ts';

const file = join(folderOfFile(), 'rules.json');
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
