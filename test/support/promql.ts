/**
 * Reads metric names and label matchers out of PromQL: enough to compare dashboards, rules and
 * pages with the definitions.
 */
import type { Definition } from '../../internal/telemetry/definition.ts';
import { definitions } from '../../internal/telemetry/metrics.ts';
import { createProcessRegistry } from '../../internal/telemetry/registry.ts';

export interface Selector {
  /** Without the suffix of a histogram's parts. */
  readonly metric: string;
  readonly matchers: readonly {
    readonly label: string;
    readonly operator: string;
    readonly value: string;
  }[];
}

const SELECTOR = /\b((?:partner_ingest|nodejs|process)_[a-z0-9_]+)\b(?!:)(?:\{([^}]*)\})?/g;
const MATCHER = /(\w+)(=~|!~|!=|=)"([^"]*)"/g;

/** Every selector in `expression`; those of recording rules (with colons) are left out. */
export function selectorsIn(expression: string): Selector[] {
  return [...expression.matchAll(SELECTOR)].map(([, name = '', matchers = '']) => ({
    metric: name.replace(/_(bucket|count)$/, '').replace(/_sum$/, ''),
    matchers: [...matchers.matchAll(MATCHER)].map(([, label = '', operator = '', value = '']) => ({
      label,
      operator,
      value,
    })),
  }));
}

/** Given by Prometheus, and by histograms. */
const COMMON_LABELS = ['namespace', 'pod', 'component', 'le'];
const LABELS_OF_NODE = ['type', 'kind', 'space', 'version', 'major', 'minor', 'patch'];

/** The labels of each of our metrics, with their values where those are known. */
export const ours: ReadonlyMap<string, Definition['labels']> = new Map(
  Object.values(definitions).flatMap((table) =>
    Object.values(table).map((one: Definition) => [one.name, one.labels] as const),
  ),
);
const ofNode = (await createProcessRegistry('ingest').getMetricsAsJSON()).map(({ name }) => name);

/** What an expression asks for that is not there: metrics, labels, and values of labels. */
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
