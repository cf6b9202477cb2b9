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
  '4h': '40s',
  '6h': '10s',
  '1d': '20s',
  '3d': '20s',
  '7d': '40s',
};

/** A promise of the chart for the drill: the noise of 40 requests a second does not break it. */
export const RULE_VALUES: Readonly<Record<string, number>> = {
  'metrics.prometheusRule.sloPercent': 95,
};

/** Comparisons of the rules for the drill, so that a fault crosses one in seconds. */
const OTHER_BOUNDS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  PartnerIngestApplicationsWaiting: { '> 600': '> 75' },
  PartnerIngestMailsWaiting: { '> 3600': '> 40', '>= 50': '>= 600' },
  PartnerIngestKeysStale: { '> 300': '> 75' },
  PartnerIngestMailsUndeliverable: { '>= 5': '>= 10' },
  PartnerIngestBacklogStale: { '> 300': '> 75' },
  PartnerIngestRefusalsDropped: { '> 20': '> 5' },
};

/** Windows of single rules that must be longer. */
const SHORT_OF_RULE: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  // A frozen process is not scraped, so the window must begin before it freezes.
  PartnerIngestWithdrawalsFailed: { '1h': '60s' },
  // One of two processes is killed each time, and takes seconds to start again.
  PartnerIngestCrashLoop: { '15m': '60s' },
};

/** The rules with seconds for minutes; an unknown duration or bound is a bug here. */
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
