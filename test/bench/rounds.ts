/**
 * Measures settings in turns, and says what their rounds come to: medians, ratios, and the
 * processor time of each part.
 */
import { styleText } from 'node:util';
import { table } from '../../internal/platform/process/terminal.ts';

const US_PER_SECOND = 1e6;

export interface Sample {
  readonly count: number;
  readonly seconds: number;
  /** 99 of 100 requests took at most this long. */
  readonly p99Ms?: number;
  /** By program; `service` is our processes together. */
  readonly processorSeconds: Readonly<Record<string, number>>;
}

export interface Setting {
  readonly name: string;
  readonly run: () => Promise<Sample>;
}

/** Runs every setting once in each round; the first round warms up and does not count. */
export async function compare(
  unit: string,
  settings: readonly Setting[],
  { rounds, json }: { readonly rounds: number; readonly json: boolean },
): Promise<void> {
  const all = settings.map(({ name }) => ({ name, samples: [] as Sample[] }));
  for (let round = 0; round <= rounds; round += 1) {
    for (const [index, { name, run }] of settings.entries()) {
      const sample = await run();
      if (round > 0) all[index]!.samples.push(sample);
      const words = `round ${round}, ${name}: ${Math.round(rateOf(sample))}/s`;
      console.error(styleText('dim', words));
    }
  }
  const parts = [
    ...new Set(
      all.flatMap(({ samples }) => samples.flatMap((one) => Object.keys(one.processorSeconds))),
    ),
  ];
  const first = all[0]!.samples;
  const results = all.map(({ name, samples }) => ({
    name,
    perSecond: median(samples.map(rateOf)),
    // Ratios of one round cancel out a drift of the machine.
    ratio: median(samples.map((sample, index) => rateOf(first[index]!) / rateOf(sample))),
    ...(first[0]?.p99Ms === undefined
      ? {}
      : { p99Ms: median(samples.map(({ p99Ms = Number.NaN }) => p99Ms)) }),
    processorMicroseconds: Object.fromEntries(
      parts.map((part) => [part, microseconds(samples, part)]),
    ),
  }));
  if (json) {
    console.log(JSON.stringify({ unit, results }));
    return;
  }
  const rows = results.map(({ name, perSecond, ratio, p99Ms, processorMicroseconds }) => [
    name,
    `${Math.round(perSecond)}/s`,
    `${ratio.toFixed(2)} x`,
    ...(p99Ms === undefined ? [] : [`${p99Ms.toFixed(1)} ms`]),
    ...Object.values(processorMicroseconds).map((one) => `${one.toFixed(0)} µs`),
  ]);
  const latency = first[0]?.p99Ms === undefined ? [] : ['p99'];
  const head = [`processor time of one ${unit}`, 'rate', 'the first is', ...latency, ...parts];
  console.log(`\n${table([head, ...rows])}`);
}

const rateOf = ({ count, seconds }: Sample): number => count / seconds;

function microseconds(samples: readonly Sample[], part: string): number {
  const sum = (of: (sample: Sample) => number): number =>
    samples.reduce((all, sample) => all + of(sample), 0);
  return (
    (US_PER_SECOND * sum(({ processorSeconds }) => processorSeconds[part] ?? 0)) /
    sum(({ count }) => count)
  );
}

function median(values: readonly number[]): number {
  return values.toSorted((one, other) => one - other)[Math.floor(values.length / 2)]!;
}
