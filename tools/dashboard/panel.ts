/**
 * Makes Grafana panels, rows and their places on the board out of short descriptions; the types are
 * Grafana's own.
 */
import { ThresholdsMode, type FieldConfigSource, type Panel, type RowPanel } from '@grafana/schema';

/**
 * One line or column of a panel: what is asked, and what it is called (`{{label}}` is replaced by
 * its value).
 */
export interface Query {
  readonly ask: string;
  readonly name: string;
}

export interface PanelSpec {
  /** A table has a column for each query, and a row for each label's value. */
  readonly kind: 'timeseries' | 'stat' | 'table';
  readonly title: string;
  /** What a healthy picture looks like, or what a bad one means. */
  readonly about: string;
  /** Grafana's name of the unit, such as `s`, `reqps`, `bytes`, `percentunit`, `short`. */
  readonly unit: string;
  readonly queries: readonly Query[];
  /** From this value on the colour is that of trouble. */
  readonly bad?: number;
  /** Below this value the colour is that of trouble. */
  readonly badBelow?: number;
  /** Every other value has the colour of trouble. */
  readonly good?: number;
  readonly stacked?: boolean;
  readonly decimals?: number;
}

export interface RowSpec {
  readonly title: string;
  /** What is seen without opening it. */
  readonly open?: boolean;
  readonly panels: readonly PanelSpec[];
}

const BOARD_WIDTH = 24;
/** Three beside each other, stats six. */
const SIZE = {
  timeseries: { h: 8, w: 8 },
  table: { h: 8, w: 8 },
  stat: { h: 4, w: 4 },
} as const;
const DATA_SOURCE = { type: 'prometheus', uid: '${datasource}' };
const [GREEN, RED] = ['green', 'red'];

/**
 * All rows and panels with their places, from left to right and down. Grafana keeps the panels of a
 * folded row inside it.
 */
export function layOut(rows: readonly RowSpec[]): (Panel | RowPanel)[] {
  const made: (Panel | RowPanel)[] = [];
  let [y, id] = [0, 0];
  for (const { title, open = false, panels } of rows) {
    const row = { type: 'row' as const, id: (id += 1), title, collapsed: !open };
    const gridPos = { h: 1, w: BOARD_WIDTH, x: 0, y };
    let [x, below, lineHeight] = [0, y + 1, 0];
    const inside = panels.map((spec) => {
      const size = SIZE[spec.kind];
      if (x + size.w > BOARD_WIDTH) [x, below, lineHeight] = [0, below + lineHeight, 0];
      const place = { ...size, x, y: below };
      [x, lineHeight] = [x + size.w, Math.max(lineHeight, size.h)];
      return { ...panel(spec), id: (id += 1), gridPos: place };
    });
    if (open) made.push({ ...row, panels: [], gridPos }, ...inside);
    else made.push({ ...row, panels: inside, gridPos });
    y = open ? below + lineHeight : y + 1;
  }
  return made;
}

function panel(spec: PanelSpec): Panel {
  return {
    type: spec.kind,
    title: spec.title,
    description: spec.about,
    datasource: DATA_SOURCE,
    targets: spec.queries.map(({ ask, name }, index) => ({
      refId: String.fromCharCode('A'.charCodeAt(0) + index),
      datasource: DATA_SOURCE,
      expr: ask,
      legendFormat: name,
      ...(spec.kind === 'table' ? { format: 'table' } : {}),
      ...(spec.kind === 'timeseries' ? { range: true } : { instant: true }),
    })),
    ...(spec.kind === 'table' ? { transformations: columns(spec) } : {}),
    fieldConfig: fieldConfig(spec),
    options: options[spec.kind],
  };
}

/** One row for each label's value, with the names of the queries above its columns. */
function columns({ queries }: PanelSpec): { id: string; options: object }[] {
  const names = queries.map(({ name }, index) => [
    // Grafana numbers the columns only where there are several.
    queries.length === 1 ? 'Value' : `Value #${String.fromCharCode('A'.charCodeAt(0) + index)}`,
    name,
  ]);
  return [
    { id: 'merge', options: {} },
    {
      id: 'organize',
      options: { excludeByName: { Time: true }, renameByName: Object.fromEntries(names) as object },
    },
  ];
}

function fieldConfig({
  kind,
  unit,
  bad,
  badBelow,
  good,
  stacked,
  decimals,
}: PanelSpec): FieldConfigSource {
  const from = good ?? badBelow;
  const until = good === undefined ? bad : good + 1;
  const steps = [
    { value: null, color: from === undefined ? GREEN : RED },
    ...(from === undefined ? [] : [{ value: from, color: GREEN }]),
    ...(until === undefined ? [] : [{ value: until, color: RED }]),
  ];
  const lines = {
    drawStyle: 'line',
    lineWidth: 1,
    fillOpacity: stacked === true ? 30 : 8,
    showPoints: 'never',
    stacking: { mode: stacked === true ? 'normal' : 'none', group: 'A' },
    thresholdsStyle: { mode: bad === undefined ? 'off' : 'dashed' },
  };
  return {
    defaults: {
      unit,
      ...(kind === 'timeseries' ? { min: 0, custom: lines } : {}),
      ...(decimals === undefined ? {} : { decimals }),
      // Grafana's own files say `null` for "from the smallest number on", which its types forget.
      thresholds: { mode: ThresholdsMode.Absolute, steps },
    },
    overrides: [],
  };
}

/** What differs from Grafana's own defaults. */
const options: Readonly<Record<PanelSpec['kind'], Record<string, unknown>>> = {
  timeseries: { tooltip: { mode: 'multi', sort: 'desc' } },
  stat: { colorMode: 'background', graphMode: 'none' },
  table: {},
};
