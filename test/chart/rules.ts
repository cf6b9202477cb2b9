/**
 * The alert rules as Helm renders them, for promtool, the drill and the comparison with metrics and
 * runbooks.
 */
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { parse, stringify } from 'yaml';
import { findHelm } from '../support/helm.ts';

const CHART = fileURLToPath(new URL('../../charts/partner-ingest', import.meta.url));
const HELM_TIMEOUT_MS = 60_000;

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

/** Renders the chart; `values` by path. Rejects when there is no Helm, or Helm says no. */
export async function renderRules(
  values: Readonly<Record<string, string | number>> = {},
): Promise<Rules> {
  const helm = await findHelm(3);
  if (typeof helm === 'string') throw new Error(helm);
  const settings = {
    'evaluation.enabled': true,
    'metrics.prometheusRule.enabled': true,
    'metrics.prometheusRule.runbookBaseUrl': 'https://runbooks.example',
    ...values,
  };
  const { stdout } = await promisify(execFile)(
    helm.program,
    [
      'template',
      'test',
      CHART,
      `--namespace=${NAMESPACE}`,
      '--show-only=templates/prometheusrule.yaml',
      ...Object.entries(settings).flatMap(([name, value]) => [
        '--set-json',
        `${name}=${JSON.stringify(value)}`,
      ]),
    ],
    { timeout: HELM_TIMEOUT_MS },
  );
  return (parse(stdout) as { spec: Rules }).spec;
}

export function alertsOf({ groups }: Rules): AlertRule[] {
  return groups.flatMap(({ rules }) => rules.filter((rule) => 'alert' in rule));
}

/** A rule file as Prometheus reads it. */
export function ruleFile(rules: Rules): string {
  return stringify(rules, { lineWidth: 0 });
}
