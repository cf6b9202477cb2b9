/** What a metric is before it is made, and how it is made: every series that counts begins at 0. */
import { Counter, Gauge, Histogram, type Registry } from 'prom-client';

export const PREFIX = 'partner_ingest_';

type LabelValues<Label extends string> = Readonly<Record<Label, readonly string[]>>;

/** What is known of a metric before it is made. */
export interface Definition<Kind extends string = 'counter' | 'gauge' | 'histogram', Label extends string = string> {
  readonly kind: Kind;
  readonly name: string;
  readonly help: string;
  readonly labels: LabelValues<Label>;
  /** The combinations of label values that occur, where these are not all. */
  readonly series?: readonly Readonly<Record<Label, string>>[];
  readonly buckets?: readonly number[];
}

export function counter<Label extends string = never>(
  name: string,
  help: string,
  labels = {} as LabelValues<Label>,
  series?: readonly Readonly<Record<Label, string>>[],
): Definition<'counter', Label> {
  return { kind: 'counter', name: `${PREFIX}${name}_total`, help, labels, ...(series === undefined ? {} : { series }) };
}

export function gauge<Label extends string = never>(
  name: string,
  help: string,
  labels = {} as LabelValues<Label>,
): Definition<'gauge', Label> {
  return { kind: 'gauge', name: `${PREFIX}${name}`, help, labels };
}

export function histogram(name: string, help: string, buckets: readonly number[]): Definition<'histogram', never> {
  return { kind: 'histogram', name: `${PREFIX}${name}`, help, labels: {}, buckets };
}

type Made<D> =
  D extends Definition<'counter', infer Label>
    ? Counter<Label>
    : D extends Definition<'gauge', infer Label>
      ? Gauge<Label>
      : Histogram;

export function make<Table extends Readonly<Record<string, Definition<string, never>>>>(
  table: Table,
  registry: Registry,
): { readonly [Name in keyof Table]: Made<Table[Name]> } {
  const made = Object.entries(table).map(([key, definition]) => [key, makeOne(definition as Definition, registry)]);
  return Object.fromEntries(made) as { readonly [Name in keyof Table]: Made<Table[Name]> };
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
export function seriesOf({ labels, series }: Definition): readonly Readonly<Record<string, string>>[] {
  if (series !== undefined) return series;
  return Object.entries(labels).reduce<Record<string, string>[]>(
    (all, [label, values]) => all.flatMap((one) => values.map((value) => ({ ...one, [label]: value }))),
    [{}],
  );
}

export function valuesOf<Key extends string>(series: readonly Readonly<Record<Key, string>>[], key: Key): string[] {
  return [...new Set(series.map((one) => one[key]))];
}
