/**
 * The alert rules as Helm renders them, for promtool, the drill and the comparison with metrics and
 * runbooks.
 */
import { stringify } from 'yaml';
import { evaluation, one, render, withValues, type Json } from '../support/chart.ts';

/** The namespace of the rendered release: every selector asks for it. */
export const NAMESPACE = 'partner-ingest';

export interface AlertRule {
  readonly alert: string;
  readonly expr: string;
  readonly for?: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
}

export interface Rules {
  readonly groups: readonly {
    readonly name: string;
    readonly rules: readonly (AlertRule | { readonly record: string; readonly expr: string })[];
  }[];
}

/** Renders the chart; `values` by path. */
export async function renderRules(values: Json = {}): Promise<Rules> {
  const settings = {
    'metrics.prometheusRule.enabled': true,
    'metrics.prometheusRule.runbookBaseUrl': 'https://runbooks.example',
    ...values,
  };
  const objects = await render(withValues(evaluation, settings), {
    release: 'test',
    namespace: NAMESPACE,
  });
  return one(objects, 'PrometheusRule')['spec'] as Rules;
}

export function alertsOf({ groups }: Rules): AlertRule[] {
  return groups.flatMap(({ rules }) => rules.filter((rule) => 'alert' in rule));
}

/** A rule file as Prometheus reads it. */
export function ruleFile(rules: Rules): string {
  return stringify(rules, { lineWidth: 0 });
}
