/** The chart's rules for a run of seconds: their windows and thresholds. */
import type { Rules } from '../chart/rules.ts';

/** Everything but the name of the alert stays; windows and waits become seconds. */
const SHORT: Readonly<Record<string, string>> = {
  '10s': '2s',
  '1m': '2s',
  '2m': '5s',
  '5m': '10s',
  '10m': '8s',
  '15m': '15s',
  '20m': '17s',
  '30m': '10s',
  '1h': '20s',
  '2h': '6s',
  '6h': '10s',
  '1d': '20s',
  '3d': '20s',
  '7d': '40s',
};

/**
 * Values of the chart for the drill: so that one fault crosses one threshold and the noise of 40
 * requests a second none.
 */
export const RULE_VALUES: Readonly<Record<string, number>> = {
  'metrics.prometheusRule.sloPercent': 95,
  'metrics.prometheusRule.thresholds.oldestWaitingSeconds': 75,
  'metrics.prometheusRule.thresholds.mailsWaitingSeconds': 40,
  'metrics.prometheusRule.thresholds.mailsWaiting': 600,
  'metrics.prometheusRule.thresholds.keysStaleSeconds': 75,
  'metrics.prometheusRule.thresholds.undeliverable': 10,
  'metrics.prometheusRule.thresholds.backlogStaleSeconds': 75,
  'metrics.prometheusRule.thresholds.refusals': 400,
  'metrics.prometheusRule.thresholds.refusalsDropped': 5,
};

/**
 * A frozen process is not scraped: only a window that began before shows what it counts as it
 * thaws.
 */
const SHORT_OF_RULE: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  PartnerIngestWithdrawalsFailed: { '1h': '60s' },
};
/** The rules with seconds for minutes; an unknown duration is a bug here. */
export function shorten(rules: Rules): Rules {
  const short = (rule: string, duration: string): string => {
    const found = SHORT_OF_RULE[rule]?.[duration] ?? SHORT[duration];
    if (found === undefined) throw new Error(`short-rules.ts has no short form of ${duration}`);
    return found;
  };
  return {
    groups: rules.groups.map(({ name, rules: list }) => ({
      name,
      rules: list.map((rule) => {
        const own = (duration: string): string =>
          short('alert' in rule ? rule.alert : '', duration);
        return {
          ...rule,
          expr: rule.expr
            .replaceAll(/\[(\w+)\]/g, (_, duration: string) => `[${own(duration)}]`)
            .replaceAll(/\boffset (\w+)/g, (_, duration: string) => `offset ${own(duration)}`),
          ...('for' in rule && rule.for !== undefined ? { for: own(rule.for) } : {}),
        };
      }),
    })),
  };
}
