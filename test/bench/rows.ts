/** Measures in turns, and makes rows of the table of what the rounds come to. */

export interface Sample {
  readonly count: number;
  readonly seconds: number;
  /** In milliseconds: 99 of 100 answers took at most this long. */
  readonly p99Ms?: number;
  /** By program; `service` is the measured process. */
  readonly processorSeconds: Readonly<Record<string, number>>;
}

/** A figure of each contender, by its name. */
export type Row = readonly [figure: string, cells: Readonly<Record<string, string>>];

export const CPU_OF_ACCEPT = 'CPU of an accept';
export const CPU_OF_APPLICATION = 'CPU of an application';

export const headOf = (rows: readonly Row[]): string[] => [
  ...new Set(rows.flatMap(([, cells]) => Object.keys(cells))),
];

/** The samples of each contender, by round. */
export type Rounds = Readonly<Record<string, readonly Sample[]>>;

interface Setting {
  readonly name: string;
  readonly run: () => Promise<Sample>;
}

/** Runs every setting once in each round; the first round warms up and does not count. */
export async function measureInTurns(
  settings: readonly Setting[],
  rounds: number,
  log: (line: string) => void,
): Promise<Rounds> {
  const all: Record<string, Sample[]> = {};
  for (let round = 0; round <= rounds; round += 1) {
    // The stores are fuller for those that come later in a round.
    for (const { name, run } of round % 2 === 0 ? settings : settings.toReversed()) {
      const sample = await run();
      log(`round ${round}, ${name}: ${Math.round(rateOf(sample))}/s`);
      if (round > 0) (all[name] ??= []).push(sample);
    }
  }
  return Object.fromEntries(settings.map(({ name }) => [name, all[name] ?? []]));
}

export function acceptRows(connections: number, rounds: Rounds): Row[] {
  const bare = rounds['bare Fastify'] ?? [];
  const above = (sample: Sample, round: number): number =>
    serviceUs(sample) - serviceUs(bare[round]!);
  const { 'bare Fastify': _, ...services } = rounds;
  const load = `with ${connections} connections`;
  return [
    row(`accepts a second ${load}`, rounds, rateOf, whole),
    row(`p99 ${load}`, rounds, ({ p99Ms = 0 }) => p99Ms, milliseconds),
    row(`${CPU_OF_ACCEPT} ${load}`, rounds, serviceUs, microseconds),
    row('above bare Fastify', services, above, microseconds),
    row("stores' CPU of it", services, storesUs, microseconds),
  ];
}

export function drainRows(rounds: Rounds): Row[] {
  return [
    row('applications a second', rounds, rateOf, whole),
    row(CPU_OF_APPLICATION, rounds, serviceUs, microseconds),
    row("stores' CPU of it", rounds, storesUs, microseconds),
  ];
}

/** Medians; behind those of others how many times as much ours are. */
function row(
  figure: string,
  rounds: Rounds,
  of: (sample: Sample, round: number) => number,
  unit: (value: number) => string,
): Row {
  const ours = (rounds['ours'] ?? []).map(of);
  const cells = Object.entries(rounds).map(([name, samples]) => {
    const values = samples.map(of);
    // Ratios of one round cancel out a drift of the machine.
    const share = median(values.map((value, round) => ours[round]! / value));
    return [name, unit(median(values)) + (name === 'ours' ? '' : ` (${share.toFixed(2)})`)];
  });
  return [figure, Object.fromEntries(cells) as Record<string, string>];
}

export const whole = (value: number): string => Math.round(value).toLocaleString('en');
export const milliseconds = (value: number): string => `${value.toFixed(1)} ms`;
const microseconds = (value: number): string => `${whole(value)} µs`;

const rateOf = ({ count, seconds }: Sample): number => count / seconds;

const US_PER_SECOND = 1e6;
/** Parts that are no store. */
const OTHERS = ['service', 'wrk'];
const serviceUs = ({ processorSeconds: { service = 0 }, count }: Sample): number =>
  (US_PER_SECOND * service) / count;
const storesUs = ({ processorSeconds, count }: Sample): number => {
  const stores = Object.entries(processorSeconds).filter(([part]) => !OTHERS.includes(part));
  return (US_PER_SECOND * stores.reduce((sum, [, seconds]) => sum + seconds, 0)) / count;
};

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((one, other) => one - other);
  const middle = (sorted.length - 1) / 2;
  return (sorted[Math.floor(middle)]! + sorted[Math.ceil(middle)]!) / 2;
}
