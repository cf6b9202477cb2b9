/** Defines and creates metrics; every counted series begins at 0. */
import { Counter, Gauge, Histogram, type Registry } from 'prom-client';

export const PREFIX = 'partner_ingest_';

type LabelValues = Readonly<Record<string, readonly string[]>>;
/** Values known only at run time, such as names of partners. */
export const openValues: readonly string[] = [];
type NoLabels = { readonly [Name in never]: readonly string[] };

export interface Definition<Made = unknown> {
  readonly kind: 'counter' | 'gauge' | 'histogram';
  readonly name: string;
  readonly help: string;
  readonly labels: LabelValues;
  /** The combinations that occur, if not all do. */
  readonly series?: readonly Readonly<Record<string, string>>[];
  readonly buckets?: readonly number[];
  /** Only a type: what is made of the definition. */
  readonly made?: Made;
}

interface CounterOf<Series extends readonly unknown[]> {
  readonly inc: (...values: [...Series, by?: number]) => void;
}

interface GaugeOf<Series extends readonly unknown[]> extends CounterOf<Series> {
  readonly set: (...values: [...Series, value: number]) => void;
  readonly reset: () => void;
  /** Without labels: there is no value until the next `set`. */
  readonly remove: () => void;
}

interface HistogramOf<Series extends readonly unknown[]> {
  readonly observe: (...values: [...Series, value: number]) => void;
}

type Labelled<Labels extends LabelValues> = {
  readonly [Name in keyof Labels]: Labels[Name][number];
};

/** The first argument where there are labels. */
type SeriesOf<Labels extends LabelValues> = keyof Labels extends never
  ? []
  : [labels: Labelled<Labels>];

export const counter = <const Labels extends LabelValues = NoLabels>(
  name: string,
  help: string,
  labels: Labels = {} as Labels,
  more: { readonly series?: readonly Labelled<Labels>[] } = {},
): Definition<CounterOf<SeriesOf<Labels>>> => ({
  kind: 'counter',
  name: `${PREFIX}${name}_total`,
  help,
  labels,
  ...more,
});

export const gauge = <const Labels extends LabelValues = NoLabels>(
  name: string,
  help: string,
  labels: Labels = {} as Labels,
): Definition<GaugeOf<SeriesOf<Labels>>> => ({
  kind: 'gauge',
  name: PREFIX + name,
  help,
  labels,
});

export const histogram = <const Labels extends LabelValues = NoLabels>(
  name: string,
  help: string,
  buckets: readonly number[],
  labels: Labels = {} as Labels,
): Definition<HistogramOf<SeriesOf<Labels>>> => ({
  kind: 'histogram',
  name: PREFIX + name,
  help,
  labels,
  buckets,
});

export type MetricsOf<Table> = {
  readonly [Name in keyof Table]: Table[Name] extends Definition<infer Made> ? Made : never;
};

export function make<Table extends Readonly<Record<string, Definition>>>(
  table: Table,
  registry: Registry,
): MetricsOf<Table> {
  const made = Object.entries(table).map(([key, definition]) => [
    key,
    makeOne(definition, registry),
  ]);
  return Object.fromEntries(made) as MetricsOf<Table>;
}

function makeOne(definition: Definition, registry: Registry): Counter | Gauge | Histogram {
  const { kind, name, help, labels, buckets = [] } = definition;
  const settings = { name, help, labelNames: Object.keys(labels), registers: [registry] };
  if (kind === 'histogram') return new Histogram({ ...settings, buckets: [...buckets] });
  if (kind === 'gauge') return new Gauge(settings);
  const made = new Counter(settings);
  // `increase()` misses the first event of a new series.
  for (const series of seriesOf(definition)) made.inc(series, 0);
  return made;
}

export function seriesOf({
  labels,
  series,
}: Definition): readonly Readonly<Record<string, string>>[] {
  if (series !== undefined) return series;
  return Object.entries(labels).reduce<Record<string, string>[]>(
    (all, [label, values]) =>
      all.flatMap((one) => values.map((value) => ({ ...one, [label]: value }))),
    [{}],
  );
}

export function valuesOf<Series extends Readonly<Record<string, string>>, Key extends keyof Series>(
  series: readonly Series[],
  key: Key,
): Series[Key][] {
  return [...new Set(series.map((one) => one[key]))];
}

export const loops = [
  'backlog',
  'audit',
  'clock',
  'credentials',
  'expiry',
  'holds',
  'installation',
  'key_uses',
  'keys',
  'lease',
  'living_pods',
  'old_queue',
  'outcome_waits',
  'over_limit',
  'partner_secrets',
  'partner_status',
  'pods',
  'probe',
  'reconcile',
  'status_waits',
  'stored',
  'traffic',
  'unknown_records',
] as const;

/** The metrics that every process has. */
export const ofProcess = {
  loopFailing: gauge(
    'loop_failing',
    '1 while a loop has not succeeded for its bound; `/readyz` says why.',
    { loop: loops },
  ),
  ready: gauge('ready', '1 while the process is ready; `/readyz` says why not.'),
  logLinesDropped: counter('log_lines_dropped', 'Log lines dropped because nobody read them.'),
};
