/**
 * Measures settings in turns, and says what their rounds come to: medians, ratios, and the
 * processor time of each part.
 */
import { styleText } from 'node:util';
import { table } from '../../internal/operators/view/terminal.ts';

const US_PER_SECOND = 1e6;

export interface Sample {
  readonly count: number;
  readonly seconds: number;
  /** By name. `p99Ms`: 99 of 100 requests took at most this long. */
  readonly figures: Readonly<Record<string, number>>;
  /** By program; `service` is our processes together. */
  readonly processorSeconds: Readonly<Record<string, number>>;
}

export interface Setting {
  readonly name: string;
  readonly run: () => Promise<Sample>;
  /** The service that does the least: what each service costs above it is told, too. */
  readonly bare?: boolean;
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
  const first = all[0]!.samples;
  const bare = all[settings.findIndex((setting) => setting.bare)]?.samples;
  const results = all.map(({ name, samples }) => ({
    name,
    perSecond: median(samples.map(rateOf)),
    // Ratios of one round cancel out a drift of the machine.
    ratio: median(samples.map((sample, index) => rateOf(first[index]!) / rateOf(sample))),
    figures: mediansOf(samples.map(({ figures }) => figures)),
    processorMicroseconds: mediansOf(
      samples.map((sample, index) => microsecondsOf(sample, bare?.[index])),
    ),
  }));
  if (json) {
    console.log(JSON.stringify({ unit, results }));
    return;
  }
  const figures = namesIn(results.map((result) => result.figures));
  const parts = namesIn(results.map((result) => result.processorMicroseconds));
  const rows = results.map((result) => [
    result.name,
    `${Math.round(result.perSecond)}/s`,
    `${result.ratio.toFixed(2)} x`,
    ...figures.map((figure) => (result.figures[figure] ?? 0).toFixed(2)),
    ...parts.map((part) => `${(result.processorMicroseconds[part] ?? 0).toFixed(0)} µs`),
  ]);
  const head = [`processor time of one ${unit}`, 'rate', 'the first is', ...figures, ...parts];
  console.log(`\n${table([head, ...rows])}`);
}

const rateOf = ({ count, seconds }: Sample): number => count / seconds;

/** The processor time of one unit, by program. */
function microsecondsOf(sample: Sample, bare: Sample | undefined): Record<string, number> {
  const each = ({ processorSeconds, count }: Sample, part: string): number =>
    (US_PER_SECOND * (processorSeconds[part] ?? 0)) / count;
  const parts = Object.keys(sample.processorSeconds).map((part) => [part, each(sample, part)]);
  const above = bare && { 'above bare': each(sample, 'service') - each(bare, 'service') };
  return { ...above, ...Object.fromEntries(parts) };
}

type Figures = Readonly<Record<string, number>>;

const namesIn = (all: readonly Figures[]): string[] => [...new Set(all.flatMap(Object.keys))];

const mediansOf = (all: readonly Figures[]): Record<string, number> =>
  Object.fromEntries(
    namesIn(all).map((name) => [name, median(all.map((figures) => figures[name] ?? 0))]),
  );

function median(values: readonly number[]): number {
  const sorted = values.toSorted((one, other) => one - other);
  const middle = (sorted.length - 1) / 2;
  return (sorted[Math.floor(middle)]! + sorted[Math.ceil(middle)]!) / 2;
}
