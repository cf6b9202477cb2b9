/** The metrics of a process, and the types of metrics that rooms use. */
import { Registry, collectDefaultMetrics } from 'prom-client';

/** Node's own metrics whose names break Prometheus' rules. */
const MISNAMED = [
  'nodejs_active_handles_total',
  'nodejs_active_requests_total',
  'nodejs_active_resources_total',
  'nodejs_eventloop_utilization_histogram',
  'nodejs_eventloop_utilization_summary',
];

export function createRegistry(component: string): Registry {
  const registry = new Registry();
  registry.setDefaultLabels({ component });
  return registry;
}

/** Two metrics that are removed would be measured ten times a second: the longest time of a timer. */
const NEVER_MS = 2 ** 31 - 1;

/** Call it once, because prom-client never stops measuring. */
export function createProcessRegistry(component: string): Registry {
  const registry = createRegistry(component);
  collectDefaultMetrics({ register: registry, eventLoopUtilizationTimeout: NEVER_MS });
  for (const name of MISNAMED) registry.removeSingleMetric(name);
  return registry;
}

export interface LabelledCounter<Labels> {
  inc(labels: Labels, by?: number): void;
}

export interface PlainCounter {
  inc(by?: number): void;
}

export interface PlainGauge {
  set(value: number): void;
}

export interface PlainHistogram {
  observe(value: number): void;
}
