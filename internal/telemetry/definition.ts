/** What a metric is before it is made, and how it is made: every series that counts begins at 0. */
import { Counter, Gauge, Histogram, type Registry } from 'prom-client';

import { defined } from '../platform/defined.ts';

export const PREFIX = 'partner_ingest_';

/** Label names, each with all its values. */
type LabelValues = Readonly<Record<string, readonly string[]>>;
/** Values that only a running process knows, such as names of partners. */
export interface OpenValues extends ReadonlyArray<string> {
  readonly open: true;
}
export const openValues: OpenValues = Object.assign([], { open: true as const });
/** Refuses a list of values that has widened to `string`: its series would not begin at 0. */
type Known<Labels extends LabelValues> = {
  readonly [Name in keyof Labels]: Labels[Name] extends OpenValues
    ? Labels[Name]
    : string extends Labels[Name][number]
      ? never
      : Labels[Name];
};
type NoLabels = { readonly [Name in never]: readonly string[] };

/** What is known of a metric before it is made. */
export interface Definition<
  Kind extends string = 'counter' | 'gauge' | 'histogram',
  Labels extends LabelValues = LabelValues,
> {
  readonly kind: Kind;
  readonly name: string;
  readonly help: string;
  readonly labels: Labels;
  /** The combinations of label values that occur, where these are not all. */
  readonly series?: readonly Readonly<Record<string, string>>[];
  readonly buckets?: readonly number[];
}

export function counter<const Labels extends LabelValues = NoLabels>(
  name: string,
  help: string,
  labels: Labels & Known<Labels> = {} as Labels & Known<Labels>,
  series?: readonly OneSeries<Labels>[],
): Definition<'counter', Labels> {
  return {
    kind: 'counter',
    name: `${PREFIX}${name}_total`,
    help,
    labels,
    ...defined({ series }),
  };
}

export function gauge<const Labels extends LabelValues = NoLabels>(
  name: string,
  help: string,
  labels: Labels & Known<Labels> = {} as Labels & Known<Labels>,
): Definition<'gauge', Labels> {
  return { kind: 'gauge', name: `${PREFIX}${name}`, help, labels };
}

export function histogram<const Labels extends LabelValues = NoLabels>(
  name: string,
  help: string,
  buckets: readonly number[],
  labels: Labels & Known<Labels> = {} as Labels & Known<Labels>,
): Definition<'histogram', Labels> {
  return { kind: 'histogram', name: `${PREFIX}${name}`, help, labels, buckets };
}

/** One value of each label. */
type OneSeries<Labels extends LabelValues> = {
  readonly [Name in keyof Labels]: Labels[Name][number];
};

/** The parameters that choose a series: its labels, or none where there are none. */
type Chosen<Labels extends LabelValues> = keyof Labels extends never
  ? []
  : [labels: OneSeries<Labels>];

/**
 * What a metric can do, as the compiler knows it: a label value that is not in its definition does
 * not compile. Functions as properties, because TypeScript compares the parameters of methods in
 * both directions.
 */
type Made<D> =
  D extends Definition<'counter', infer Labels>
    ? { readonly inc: (...values: [...Chosen<Labels>, by?: number]) => void }
    : D extends Definition<'gauge', infer Labels>
      ? {
          readonly inc: (...values: [...Chosen<Labels>, by?: number]) => void;
          readonly set: (...values: [...Chosen<Labels>, value: number]) => void;
          readonly reset: () => void;
        }
      : D extends Definition<'histogram', infer Labels>
        ? { readonly observe: (...values: [...Chosen<Labels>, value: number]) => void }
        : never;

/** The metrics of a table, made. */
export type MadeFrom<Table> = { readonly [Name in keyof Table]: Made<Table[Name]> };

export function make<Table extends Readonly<Record<string, Definition>>>(
  table: Table,
  registry: Registry,
): MadeFrom<Table> {
  const made = Object.entries(table).map(([key, definition]) => [
    key,
    makeOne(definition, registry),
  ]);
  return Object.fromEntries(made) as MadeFrom<Table>;
}

function makeOne(definition: Definition, registry: Registry): Counter | Gauge | Histogram {
  const { kind, name, help, labels, buckets = [] } = definition;
  const settings = { name, help, labelNames: Object.keys(labels), registers: [registry] };
  if (kind === 'histogram') return new Histogram({ ...settings, buckets: [...buckets] });
  if (kind === 'gauge') return new Gauge(settings);
  const made = new Counter(settings);
  // From the start at 0: `increase()` cannot see the first event of a series that begins with it.
  for (const series of seriesOf(definition)) made.inc(series, 0);
  return made;
}

/** Every combination of label values a metric can have. */
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
