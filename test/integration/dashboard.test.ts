/**
 * A real Prometheus scrapes the running service under load: it finds no fault in the metrics, and
 * has an answer to every query of the dashboard.
 */
import { spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import {
  prometheusPrograms,
  startPrometheus,
  type Prometheus,
} from '../../deploy/local/prometheus.ts';
import { pause } from '../../internal/platform/deadline.ts';
import { dashboard, dashboardQueries } from '../../tools/dashboard/dashboard.ts';
import { filledIn } from '../support/grafana.ts';
import { send } from '../support/http.ts';
import { HEAL_HANG_MS, eventually } from '../support/wait.ts';
import { newApplication, openWorld, type World } from '../support/world.ts';

const NAMESPACE = 'partner-ingest';
const SETTINGS = { namespace: NAMESPACE, rateSeconds: 5, rangeSeconds: 60 };
const AT_ONCE = 6;
/** A rate is all the panels need; more would take the processor from other tests. */
const BETWEEN_REQUESTS_MS = 200;

/**
 * The controller of this test reads a folder of manifests; these come from one that asks the
 * Kubernetes API.
 */
const KUBERNETES = ['secret_lists_total', 'secret_watches_total', 'secrets_seen_timestamp_seconds'];
/** Of kube-state-metrics, and of the chart's recording rules. */
const NOT_HERE = ['kube_', 'partner_ingest:', 'ALERTS'];
const ofKubernetes = (ask: string): boolean =>
  [...KUBERNETES, ...NOT_HERE].some((name) => ask.includes(name));

let folder: string;
let world: World;
let prometheus: Prometheus;
let adminUrls: readonly string[];
const loading = new AbortController();
let load: Promise<unknown>;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'dashboard-'));
  prometheus = await startPrometheus({ folder, everySeconds: 1, log: () => undefined });
  world = await openWorld({ controller: false });
  const processes = await Promise.all(
    (['ingest', 'processor', 'controller'] as const).map(
      async (name) => [name, await world.spawn(name)] as const,
    ),
  );
  adminUrls = processes.map(([, { adminUrl }]) => adminUrl);
  await prometheus.scrape(
    processes.map(([name, { adminUrl }]) => ({
      adminUrl,
      labels: { namespace: NAMESPACE, pod: `${name}-1` },
    })),
  );
  const url = processes[0]![1].url;
  const partner = async (): Promise<void> => {
    while (!loading.signal.aborted) {
      await send(url, { key: world.key, body: JSON.stringify(newApplication()) });
      await send(url, { key: world.key, body: '[]' });
      await pause(BETWEEN_REQUESTS_MS);
    }
  };
  load = Promise.all(Array.from({ length: AT_ONCE }, partner));
});
afterAll(async () => {
  loading.abort();
  await load;
  await prometheus.stop();
  await world.close();
  await rm(folder, { recursive: true });
});

test('no panel is empty, and none has an error', async () => {
  const queries = dashboardQueries().filter(({ query }) => !ofKubernetes(query.ask));
  expect(queries.length).toBeGreaterThan(40);
  // A quantile is NaN until something has been measured; a query that is wrong rejects, and is told
  // at the end.
  const faultOf = async ({
    panel,
    query,
  }: (typeof queries)[number]): Promise<string | undefined> => {
    const samples = await prometheus
      .query(filledIn(query.ask, SETTINGS))
      .catch((error: unknown) => String(error));
    if (typeof samples === 'string') return `${panel.title}, ${query.name}: ${samples}`;
    const any = samples.some(({ values }) => values.some(([, value]) => Number.isFinite(value)));
    return any ? undefined : `${panel.title}, ${query.name}: nothing`;
  };
  let [left, faults] = [queries, [] as string[]];
  const noneLeft = async (): Promise<boolean> => {
    const found = await Promise.all(left.map(faultOf));
    left = left.filter((_, index) => found[index] !== undefined);
    faults = found.filter((fault) => fault !== undefined);
    return left.length === 0;
  };
  await eventually('every panel to have data', noneLeft, HEAL_HANG_MS).catch(() => undefined);
  expect(faults).toEqual([]);
  for (const { name, query } of dashboard.templating?.list ?? []) {
    const ask = /^label_values\((.+), (\w+)\)$/.exec((query as { query?: string }).query ?? '');
    if (ask === null) continue;
    const wanted = name === 'namespace' ? [NAMESPACE] : ['controller-1', 'ingest-1', 'processor-1'];
    // A process whose scrape took too long is missing until the next one.
    await eventually(`the choices of ${name} to be ${wanted.join()}`, async () => {
      const series = await prometheus.query(filledIn(ask[1] ?? '', SETTINGS));
      const choices = new Set(series.map(({ metric }) => String(metric[ask[2] ?? ''])));
      return [...choices].toSorted().join() === wanted.join();
    });
  }
});

test.each([0, 1, 2])('promtool check metrics finds nothing at process %d', async (index) => {
  const { promtool } = await prometheusPrograms(() => undefined);
  const child = spawn(promtool, ['check', 'metrics'], { stdio: ['pipe', 'pipe', 'pipe'] });
  let said = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (bytes) => (said += String(bytes)));
  child.stdin.end(await (await fetch(`${adminUrls[index]}/metrics`)).text());
  const code = await new Promise((resolve) => child.once('close', resolve));
  expect({ code, said }).toEqual({ code: 0, said: '' });
});
