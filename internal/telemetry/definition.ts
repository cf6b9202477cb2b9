/** Defines and creates metrics; every counted series begins at 0. */
import { Counter, Gauge, Histogram, type Registry } from 'prom-client';

export const PREFIX = 'partner_ingest_';

type LabelValues = Readonly<Record<string, readonly string[]>>;
/** Values known only at run time, such as names of partners. */
export const openValues: readonly string[] = [];
type NoLabels = { readonly [Name in never]: readonly string[] };

export interface Definition<
  Kind extends string = 'counter' | 'gauge' | 'histogram',
  Labels extends LabelValues = LabelValues,
> {
  readonly kind: Kind;
  readonly name: string;
  readonly help: string;
  readonly labels: Labels;
  /** The combinations that occur, if not all do. */
  readonly series?: readonly Readonly<Record<string, string>>[];
  readonly buckets?: readonly number[];
}

function defining<Kind extends Definition['kind']>(kind: Kind, suffix = '') {
  return <const Labels extends LabelValues = NoLabels>(
    name: string,
    help: string,
    labels: Labels = {} as Labels,
    more: {
      readonly series?: readonly OneSeries<Labels>[];
      readonly buckets?: readonly number[];
    } = {},
  ): Definition<Kind, Labels> => ({
    kind,
    name: `${PREFIX}${name}${suffix}`,
    help,
    labels,
    ...more,
  });
}

export const counter = defining('counter', '_total');
export const gauge = defining('gauge');
export const histogram = defining('histogram');

type OneSeries<Labels extends LabelValues> = {
  readonly [Name in keyof Labels]: Labels[Name][number];
};

type Chosen<Labels extends LabelValues> = keyof Labels extends never
  ? []
  : [labels: OneSeries<Labels>];

/** Function properties, because TypeScript checks the parameters of methods less strictly. */
type Made<D> =
  D extends Definition<'counter', infer Labels>
    ? { readonly inc: (...values: [...Chosen<Labels>, by?: number]) => void }
    : D extends Definition<'gauge', infer Labels>
      ? {
          readonly inc: (...values: [...Chosen<Labels>, by?: number]) => void;
          readonly set: (...values: [...Chosen<Labels>, value: number]) => void;
          readonly reset: () => void;
          /** Without labels: there is no value until the next `set`. */
          readonly remove: () => void;
        }
      : D extends Definition<'histogram', infer Labels>
        ? { readonly observe: (...values: [...Chosen<Labels>, value: number]) => void }
        : never;

export type MetricsOf<Table> = { readonly [Name in keyof Table]: Made<Table[Name]> };

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
  'old_queue',
  'over_limit',
  'partner_secrets',
  'pods',
  'probe',
  'reconcile',
  'status_waits',
  'stored',
  'unknown_records',
] as const;

/** The metrics that every process has. */
export const ofProcess = {
  loopFailing: gauge(
    'loop_failing',
    '1 while a loop of the process has not succeeded for its bound; `/readyz` has the reason.',
    { loop: loops },
  ),
  logLinesDropped: counter('log_lines_dropped', 'Log lines dropped because nobody read them.'),
};
