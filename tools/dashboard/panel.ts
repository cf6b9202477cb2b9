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
  readonly kind: 'timeseries' | 'stat' | 'heatmap';
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
  readonly stacked?: boolean;
  readonly decimals?: number;
}

export interface RowSpec {
  readonly title: string;
  readonly panels: readonly PanelSpec[];
}

const BOARD_WIDTH = 24;
const HEIGHT = { timeseries: 8, heatmap: 8, stat: 4 } as const;
const DATA_SOURCE = { type: 'prometheus', uid: '${datasource}' };
const [GREEN, RED] = ['green', 'red'];

/**
 * All rows and panels with their places: panels of a row share its width, at most three beside each
 * other (stats: six).
 */
export function layOut(rows: readonly RowSpec[]): (Panel | RowPanel)[] {
  const made: (Panel | RowPanel)[] = [];
  let [y, id] = [0, 0];
  for (const row of rows) {
    made.push({
      type: 'row',
      id: (id += 1),
      title: row.title,
      collapsed: false,
      panels: [],
      gridPos: { h: 1, w: BOARD_WIDTH, x: 0, y },
    });
    y += 1;
    const [first] = row.panels;
    const perLine = first?.kind === 'stat' ? 6 : 3;
    const width = BOARD_WIDTH / perLine;
    const height = HEIGHT[first?.kind ?? 'timeseries'];
    for (const [index, spec] of row.panels.entries()) {
      const line = Math.floor(index / perLine);
      const gridPos = { h: height, w: width, x: (index % perLine) * width, y: y + line * height };
      made.push({ ...panel(spec), id: (id += 1), gridPos });
    }
    y += Math.ceil(row.panels.length / perLine) * height;
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
      ...(spec.kind === 'heatmap' ? { format: 'heatmap' } : {}),
      ...(spec.kind === 'stat' ? { instant: true } : { range: true }),
    })),
    fieldConfig: fieldConfig(spec),
    options: options[spec.kind],
  };
}

function fieldConfig({
  kind,
  unit,
  bad,
  badBelow,
  stacked,
  decimals,
}: PanelSpec): FieldConfigSource {
  const steps =
    badBelow === undefined
      ? [{ value: null, color: GREEN }, ...(bad === undefined ? [] : [{ value: bad, color: RED }])]
      : [
          { value: null, color: RED },
          { value: badBelow, color: GREEN },
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

const options: Readonly<Record<PanelSpec['kind'], Record<string, unknown>>> = {
  timeseries: {
    legend: { displayMode: 'list', placement: 'bottom', showLegend: true },
    tooltip: { mode: 'multi', sort: 'desc' },
  },
  stat: {
    reduceOptions: { calcs: ['lastNotNull'], fields: '', values: false },
    colorMode: 'background',
    graphMode: 'none',
    justifyMode: 'auto',
    orientation: 'auto',
    textMode: 'auto',
  },
  heatmap: {
    calculate: false,
    cellGap: 1,
    color: {
      mode: 'scheme',
      scheme: 'Oranges',
      steps: 64,
      exponent: 0.5,
      fill: 'dark-orange',
      reverse: false,
    },
    exemplars: { color: 'rgba(255,0,255,0.7)' },
    filterValues: { le: 1e-9 },
    legend: { show: true },
    rowsFrame: { layout: 'auto' },
    tooltip: { mode: 'single', yHistogram: true },
    yAxis: { axisPlacement: 'left', unit: 's' },
  },
};
