/**
 * Runs in a pod as `external.metrics.k8s.io`: gives a HorizontalPodAutoscaler the records that
 * wait, as an adapter of Prometheus would. Usage: `node metrics-adapter.ts METRIC HOST`, where HOST
 * is the headless Service of the controllers' admin port.
 */
import { lookup } from 'node:dns/promises';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:https';

const API = '/apis/external.metrics.k8s.io/v1beta1';
const PORT = 6_443;
const ADMIN_PORT = 9_090;
const TIMEOUT_MS = 2_000;
/** The states of the query in the chart's processor/autoscaler.yaml. */
const WAITING = /^partner_ingest_records\{[^}]*state="(recorded|account_created)"[^}]*\} (\d+)$/gm;

const [metric = '', host = ''] = process.argv.slice(2);

/**
 * Two controllers export the figures for a moment after the lead has changed: the larger number of
 * each state counts.
 */
async function recordsWaiting(): Promise<number> {
  const addresses = await lookup(host, { all: true });
  const most = new Map<string, number>();
  for (const { address } of addresses) {
    const response = await fetch(`http://${address}:${ADMIN_PORT}/metrics`, {
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    for (const [, state = '', count] of (await response.text()).matchAll(WAITING)) {
      most.set(state, Math.max(most.get(state) ?? 0, Number(count)));
    }
  }
  if (most.size === 0) throw new Error('no controller counts the records');
  return [...most.values()].reduce((sum, count) => sum + count, 0);
}

async function answer(path: string): Promise<object> {
  if (path === API) {
    const resource = {
      name: metric,
      singularName: '',
      namespaced: true,
      kind: 'ExternalMetricValueList',
      verbs: ['get'],
    };
    return {
      kind: 'APIResourceList',
      apiVersion: 'v1',
      groupVersion: API.slice('/apis/'.length),
      resources: [resource],
    };
  }
  const value = {
    metricName: metric,
    metricLabels: {},
    timestamp: new Date(),
    value: String(await recordsWaiting()),
  };
  return {
    kind: 'ExternalMetricValueList',
    apiVersion: API.slice('/apis/'.length),
    metadata: {},
    items: [value],
  };
}

createServer(
  { key: readFileSync('/tls/tls.key'), cert: readFileSync('/tls/tls.crt') },
  (request, response) => {
    answer(new URL(request.url ?? '/', 'https://adapter').pathname).then(
      (body) => response.setHeader('content-type', 'application/json').end(JSON.stringify(body)),
      (error: unknown) => response.writeHead(503).end(String(error)),
    );
  },
).listen(PORT);
