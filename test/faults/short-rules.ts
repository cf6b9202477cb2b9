/** Shortens the chart's rules for a run of seconds. */
import type { Rules } from '../chart/rules.ts';

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
  '4h': '40s',
  '6h': '10s',
  '1d': '20s',
  '3d': '20s',
  '7d': '40s',
};

/** The noise of 40 requests a second does not break this promise. */
export const RULE_VALUES: Readonly<Record<string, number>> = {
  'metrics.prometheusRule.sloPercent': 95,
};

/** Thresholds that a fault crosses within seconds. */
const OTHER_BOUNDS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  PartnerIngestApplicationsWaiting: { '> 600': '> 75' },
  PartnerIngestMailsWaiting: { '> 3600': '> 40', '>= 50': '>= 600' },
  PartnerIngestKeysStale: { '> 600': '> 75' },
  PartnerIngestMailsUndeliverable: { '>= 5': '>= 10' },
  PartnerIngestRefusalsDropped: { '> 20': '> 5' },
};

const SHORT_OF_RULE: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  // A frozen process is not scraped, so the window must begin before.
  PartnerIngestWithdrawalsFailed: { '1h': '60s' },
  // The killed process needs seconds to start again, and was ready before a fault.
  PartnerIngestCrashLoop: { '15m': '60s', '1d': '600s' },
  // Longer than the age that fires it.
  PartnerIngestKeysStale: { '1d': '600s' },
};

/** Returns the shortened rules; throws on an unknown duration or bound. */
export function shorten(rules: Rules): Rules {
  const short = (rule: string, duration: string): string => {
    const found = SHORT_OF_RULE[rule]?.[duration] ?? SHORT[duration];
    if (found === undefined) throw new Error(`short-rules.ts has no short form of ${duration}`);
    return found;
  };
  const bounded = (rule: string, expr: string): string =>
    Object.entries(OTHER_BOUNDS[rule] ?? {}).reduce((text, [bound, other]) => {
      if (!text.includes(bound)) throw new Error(`${rule} has no bound ${bound}`);
      return text.replaceAll(bound, other);
    }, expr);
  return {
    groups: rules.groups.map(({ name, rules: list }) => ({
      name,
      rules: list.map((rule) => {
        const own = (duration: string): string =>
          short('alert' in rule ? rule.alert : '', duration);
        return {
          ...rule,
          expr: bounded('alert' in rule ? rule.alert : '', rule.expr)
            .replaceAll(/\[(\w+)\]/g, (_, duration: string) => `[${own(duration)}]`)
            .replaceAll(/\boffset (\w+)/g, (_, duration: string) => `offset ${own(duration)}`),
          ...('for' in rule && rule.for !== undefined ? { for: own(rule.for) } : {}),
        };
      }),
    })),
  };
}
