/** Reads metric names and label matchers out of PromQL. */
import type { Definition } from '../../internal/telemetry/definition.ts';
import { definitions } from '../../internal/telemetry/metrics.ts';
import { createProcessRegistry } from '../../internal/platform/process/registry.ts';

const SELECTOR = /\b((?:partner_ingest|nodejs|process)_[a-z0-9_]+)\b(?!:)(?:\{([^}]*)\})?/g;
const MATCHER = /(\w+)(=~|!~|!=|=)"([^"]*)"/g;

/** The selectors in `expression` of metrics of ours and of Node, without recording rules. */
export function selectorsIn(expression: string) {
  return [...expression.matchAll(SELECTOR)].map(([, name = '', matchers = '']) => ({
    /** The name without the suffixes of a histogram. */
    metric: name.replace(/_(bucket|count)$/, '').replace(/_sum$/, ''),
    matchers: [...matchers.matchAll(MATCHER)].map(([, label = '', operator = '', value = '']) => ({
      label,
      operator,
      value,
    })),
  }));
}

/** Labels that Prometheus and histograms add. */
const COMMON_LABELS = ['namespace', 'pod', 'component', 'le'];
const LABELS_OF_NODE = ['type', 'kind', 'space', 'version', 'major', 'minor', 'patch'];

/** The labels of our metrics with their values. */
export const ours: ReadonlyMap<string, Definition['labels']> = new Map(
  Object.values(definitions).flatMap((table) =>
    Object.values(table).map((one: Definition) => [one.name, one.labels] as const),
  ),
);
const ofNode = (await createProcessRegistry('ingest').getMetricsAsJSON()).map(({ name }) => name);

/** Metrics, labels and values in an expression that do not exist. */
export function missingIn(expression: string): string[] {
  return selectorsIn(expression).flatMap(({ metric, matchers }) => {
    const labels = ours.get(metric);
    if (labels === undefined && !ofNode.includes(metric)) return [metric];
    const names = labels === undefined ? LABELS_OF_NODE : Object.keys(labels);
    return matchers
      .filter(({ label }) => !COMMON_LABELS.includes(label))
      .flatMap(({ label, operator, value }) => {
        if (!names.includes(label)) return [`${metric}{${label}}`];
        const values = labels?.[label] ?? [];
        const asked = operator.includes('~') ? value.split('|') : [value];
        return asked
          .filter((one) => values.length > 0 && !values.includes(one))
          .map((one) => `${metric}{${label}="${one}"}`);
      });
  });
}
