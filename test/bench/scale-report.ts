/**
 * What the rounds of `make bench OF=scale` come to: the cost of each setting, what one core of each
 * part does, the next limit.
 */
import { table } from '../../internal/platform/terminal.ts';
import { median, microsecondsOf, processorTable } from './report.ts';

const US_PER_SECOND = 1e6;
const PER_THOUSAND = 1_000;
/** The service under test, and the mail server and load generator that only the bench has. */
const MULTIPLIED = ['ingest', 'processor', 'wrk', 'relay'];

/** One setting in one round. */
export interface Sample {
  readonly count: number;
  readonly perSecond: number;
  /** Processor seconds of each process. */
  readonly perProcess: readonly number[];
  readonly processorSeconds: Readonly<Record<string, number>>;
}

export interface Cost {
  readonly setting: string;
  readonly perSecond: number;
  /** Processor time of the least loaded process, as a share of the mean. */
  readonly leastLoaded: number;
  /** Processor time of one request in µs, by part. */
  readonly microseconds: Readonly<Record<string, number>>;
}

/** `server` is what the service is called in the tables. */
export function costOf(setting: string, server: string, samples: readonly Sample[]): Cost {
  const { server: own = 0, ...others } = microsecondsOf(
    samples.map((sample) => ({ ...sample, requests: sample.count })),
  );
  return {
    setting,
    perSecond: median(samples.map(({ perSecond }) => perSecond)),
    leastLoaded: median(
      samples.map(({ perProcess }) => Math.min(...perProcess) / mean(perProcess)),
    ),
    microseconds: { [server]: own, ...others },
  };
}

export function costTable(unit: string, costs: readonly Cost[]): string {
  const rows = costs.map(({ setting, perSecond, leastLoaded, microseconds }) => [
    setting,
    `${Math.round(perSecond)}/s`,
    `${Math.round(leastLoaded * 100)} %`,
    `${Math.round(total(microseconds))} µs`,
  ]);
  return [
    table([['setting', 'rate', 'least loaded', `CPU of one ${unit}`], ...rows]),
    processorTable(
      `processor time of one ${unit}`,
      costs.map(({ setting: name, microseconds }) => ({ name, microseconds })),
    ),
  ].join('\n\n');
}

/** The highest cost of each part over all settings, and what follows from it. */
export function limitTable(unit: string, costs: readonly Cost[], cores: number): string {
  const parts = [...new Set(costs.flatMap(({ microseconds }) => Object.keys(microseconds)))];
  const highest = parts
    .map((part) => ({
      part,
      cost: Math.max(...costs.map(({ microseconds }) => microseconds[part] ?? 0)),
    }))
    .toSorted((one, other) => other.cost - one.cost);
  const next = highest.find(({ part }) => !MULTIPLIED.includes(part));
  const cheapest = Math.min(...costs.map(({ microseconds }) => total(microseconds)));
  const rows = highest.map(({ part, cost }) => [
    part,
    `${cost.toFixed(0)} µs`,
    `${rate(cost)}/s`,
    (cost / PER_THOUSAND).toFixed(3),
  ]);
  return [
    table([['part', `highest for one ${unit}`, 'a core does', 'cores for 1,000/s'], ...rows]),
    `All parts together fill the ${cores} cores of this machine at ${rate(cheapest / cores)}/s, so more processes give no more here: plan with`,
    `the processor time, not the rate. With cores enough, ${next?.part ?? 'no store'} fills one first${next === undefined ? '' : `, at ${rate(next.cost)}/s`}.`,
  ].join('\n');
}

const rate = (microseconds: number): number => Math.round(US_PER_SECOND / microseconds);
const sum = (values: readonly number[]): number => values.reduce((all, value) => all + value, 0);
const mean = (values: readonly number[]): number => sum(values) / values.length;
const total = (microseconds: Readonly<Record<string, number>>): number =>
  sum(Object.values(microseconds));
