/** Where the metrics of a process are kept until they are read. */
import { Registry, collectDefaultMetrics } from 'prom-client';
import type { definitions } from './metrics.ts';

/** Node's own metrics whose names break Prometheus' rules: they end in the name of a type. */
const MISNAMED = [
  'nodejs_active_handles_total',
  'nodejs_active_requests_total',
  'nodejs_active_resources_total',
  'nodejs_eventloop_utilization_histogram',
  'nodejs_eventloop_utilization_summary',
];

/** A registry; `component` is on every series. */
export function createRegistry(component: keyof typeof definitions): Registry {
  const registry = new Registry();
  registry.setDefaultLabels({ component });
  return registry;
}

/**
 * The registry of a process, with Node's own metrics. Once in a process: nothing ends what
 * prom-client measures them with.
 */
export function createProcessRegistry(component: keyof typeof definitions): Registry {
  const registry = createRegistry(component);
  collectDefaultMetrics({ register: registry });
  for (const name of MISNAMED) registry.removeSingleMetric(name);
  return registry;
}
