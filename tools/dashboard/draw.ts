/** Draws a board of panels as SVG: lines, stacked areas, heat maps and single values, in Grafana's grid. Pure. */
import type { PanelSpec } from './panel.ts';

export interface DrawnPanel {
  readonly spec: PanelSpec;
  /** In units of Grafana's grid of 24 columns. */
  readonly place: { readonly x: number; readonly y: number; readonly w: number; readonly h: number };
  readonly time: { readonly from: number; readonly to: number };
  readonly series: readonly { readonly name: string; readonly values: readonly (readonly [number, number])[] }[];
}

const COLUMN = 60;
const ROW = 30;
const HEAD = 56;
const GAP = 6;
const SHOWN_IN_LEGEND = 8;
/** In a quarter of the narrowest panel. */
const LEGEND_CHARACTERS = 21;
const MAX_SERIES = 40;
const COLOURS = [
  '#73bf69',
  '#f2cc0c',
  '#5794f2',
  '#ff9830',
  '#f2495c',
  '#b877d9',
  '#8ab8ff',
  '#fade2a',
  '#37872d',
  '#c4162a',
];
const [GOOD, BAD] = ['#2f7d32', '#b3282d'];

export function drawBoard(board: {
  readonly title: string;
  readonly subtitle: string;
  readonly rows: readonly { readonly title: string; readonly y: number }[];
  readonly panels: readonly DrawnPanel[];
}): string {
  const width = 24 * COLUMN;
  const height = HEAD + Math.max(...board.panels.map(({ place }) => place.y + place.h)) * ROW;
  const drawn = board.panels.map((panel) => {
    const [x, y] = [panel.place.x * COLUMN + GAP / 2, HEAD + panel.place.y * ROW + GAP / 2];
    return `<g transform="translate(${x} ${y})">${drawPanel(panel)}</g>`;
  });
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" font-family="sans-serif" font-size="10">`,
    `<rect width="${width}" height="${height}" fill="#111217"/>`,
    `<text x="12" y="26" font-size="20" fill="#eee">${safe(board.title)}</text>`,
    `<text x="12" y="44" font-size="12" fill="#9a9ca5">${safe(board.subtitle)}</text>`,
    ...board.rows.map(
      ({ title, y }) => `<text x="12" y="${HEAD + y * ROW + 20}" font-size="13" fill="#9a9ca5">${safe(title)}</text>`,
    ),
    ...drawn,
    '</svg>',
    '',
  ].join('\n');
}

function drawPanel(panel: DrawnPanel): string {
  const { spec, place } = panel;
  const [width, height] = [place.w * COLUMN - GAP, place.h * ROW - GAP];
  const box = { x: 44, y: 26, w: width - 54, h: height - (spec.kind === 'heatmap' ? 42 : 74) };
  const content =
    spec.kind === 'stat'
      ? stat(panel, width, height)
      : spec.kind === 'heatmap'
        ? heatmap(panel, box)
        : lines(panel, box);
  return [
    `<rect width="${width}" height="${height}" rx="3" fill="#181b1f" stroke="#2b2e35"/>`,
    content,
    `<text x="8" y="16" font-size="12" fill="#d8d9da">${safe(spec.title)}</text>`,
  ].join('');
}

interface Box {
  readonly x: number;
  readonly y: number;
  readonly w: number;
  readonly h: number;
}

function stat({ spec, series }: DrawnPanel, width: number, height: number): string {
  const value = series[0]?.values.at(-1)?.[1];
  const bad =
    value === undefined ||
    (spec.bad !== undefined && value >= spec.bad) ||
    (spec.badBelow !== undefined && value < spec.badBelow);
  const text = value === undefined ? 'no data' : inUnit(value, spec.unit, spec.decimals);
  return `<rect width="${width}" height="${height}" rx="3" fill="${bad ? BAD : GOOD}"/>
<text x="${width / 2}" y="${height / 2 + 18}" font-size="30" text-anchor="middle" fill="#fff">${text}</text>`;
}

function lines({ spec, series, time }: DrawnPanel, box: Box): string {
  const present = series.filter(({ values }) => values.length > 0).slice(0, MAX_SERIES);
  const stacked = spec.stacked === true ? stack(present) : present;
  const top = niceTop(Math.max(0, ...stacked.flatMap(({ values }) => values.map(([, value]) => value))));
  const [px, py] = scales(box, time, top);
  const drawn = stacked.map(({ values }, index) => {
    const colour = COLOURS[index % COLOURS.length];
    const points = values.map(([at, value]) => `${px(at)},${py(value)}`).join(' ');
    return `<polyline points="${points}" fill="none" stroke="${colour}" stroke-width="1.2"/>`;
  });
  return [axes(spec, box, time, top), ...drawn, legend(present, spec, box)].join('');
}

/** Each series on top of those before it. */
function stack(series: DrawnPanel['series']): DrawnPanel['series'] {
  const sums = new Map<number, number>();
  return series.map(({ name, values }) => ({
    name,
    values: values.map(([at, value]) => {
      const sum = (sums.get(at) ?? 0) + value;
      sums.set(at, sum);
      return [at, sum] as const;
    }),
  }));
}

function heatmap({ spec, series, time }: DrawnPanel, box: Box): string {
  const buckets = series
    .map(({ name, values }) => ({ le: name === '+Inf' ? Infinity : Number(name), values: new Map(values) }))
    .toSorted((one, other) => one.le - other.le);
  const times = [...new Set(buckets.flatMap(({ values }) => [...values.keys()]))].toSorted((one, other) => one - other);
  const count = (bucket: number, at: number): number =>
    (buckets[bucket]?.values.get(at) ?? 0) - (buckets[bucket - 1]?.values.get(at) ?? 0);
  const most = Math.max(1e-9, ...times.flatMap((at) => buckets.map((_, bucket) => count(bucket, at))));
  const rowHeight = box.h / Math.max(1, buckets.length);
  const columnWidth = box.w / Math.max(1, times.length);
  const cells = times.flatMap((at, column) =>
    buckets.map((_, bucket) => {
      const share = Math.sqrt(Math.max(0, count(bucket, at)) / most);
      if (share < 0.01) return '';
      const y = box.y + box.h - (bucket + 1) * rowHeight;
      return `<rect x="${round(box.x + column * columnWidth)}" y="${round(y)}" width="${round(columnWidth)}" height="${round(rowHeight - 1)}" fill="#ff780a" fill-opacity="${round(share)}"/>`;
    }),
  );
  const labels = buckets.map(
    ({ le }, bucket) =>
      `<text x="${box.x - 4}" y="${round(box.y + box.h - bucket * rowHeight - 2)}" text-anchor="end" fill="#8e9099" font-size="9">${Number.isFinite(le) ? inUnit(le, spec.unit) : '∞'}</text>`,
  );
  return [...cells, ...labels, timeLabels(box, time)].join('');
}

function axes(spec: PanelSpec, box: Box, time: DrawnPanel['time'], top: number): string {
  const steps = 4;
  const marks = Array.from({ length: steps + 1 }, (_, index) => (top * index) / steps).map((value) => {
    const y = round(box.y + box.h - (value / top) * box.h);
    return `<line x1="${box.x}" x2="${box.x + box.w}" y1="${y}" y2="${y}" stroke="#2b2e35"/><text x="${box.x - 4}" y="${y + 3}" text-anchor="end" fill="#8e9099" font-size="9">${inUnit(value, spec.unit)}</text>`;
  });
  const limit =
    spec.bad === undefined || spec.bad > top
      ? ''
      : `<line x1="${box.x}" x2="${box.x + box.w}" y1="${round(box.y + box.h - (spec.bad / top) * box.h)}" y2="${round(box.y + box.h - (spec.bad / top) * box.h)}" stroke="#f2495c" stroke-dasharray="4 3"/>`;
  return [...marks, limit, timeLabels(box, time)].join('');
}

function timeLabels(box: Box, { from, to }: DrawnPanel['time']): string {
  return [0, 0.5, 1]
    .map((part) => {
      const text = `${Math.round(part * (to - from))} s`;
      return `<text x="${round(box.x + part * box.w)}" y="${box.y + box.h + 12}" text-anchor="middle" fill="#8e9099" font-size="9">${text}</text>`;
    })
    .join('');
}

/** The series with the highest last values; the rest is a number. */
function legend(series: DrawnPanel['series'], spec: PanelSpec, box: Box): string {
  const perLine = 4;
  const ranked = series
    .map(({ name, values }, index) => ({ name, index, peak: Math.max(...values.map(([, value]) => value)) }))
    .toSorted((one, other) => other.peak - one.peak);
  const entries = ranked.slice(0, SHOWN_IN_LEGEND).map(({ name, index, peak }, place) => {
    const [x, y] = [
      8 + (place % perLine) * ((box.w + 46) / perLine),
      box.y + box.h + 28 + Math.floor(place / perLine) * 12,
    ];
    return `<rect x="${round(x)}" y="${round(y - 7)}" width="8" height="3" fill="${COLOURS[index % COLOURS.length]}"/><text x="${round(x + 11)}" y="${round(y - 2)}" fill="#c7c8cc" font-size="8.5">${safe(label(name, inUnit(peak, spec.unit)))}</text>`;
  });
  return entries.join('');
}

/** As much of the name as has room beside its value. */
function label(name: string, value: string): string {
  return `${name.slice(0, Math.max(1, LEGEND_CHARACTERS - value.length))} ${value}`;
}

function scales(box: Box, { from, to }: DrawnPanel['time'], top: number) {
  return [
    (at: number): number => round(box.x + ((at - from) / (to - from)) * box.w),
    (value: number): number => round(box.y + box.h - (value / top) * box.h),
  ] as const;
}

/** The next of 1, 2, 5 times a power of ten; 1 where nothing happened. */
function niceTop(value: number): number {
  if (value === 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return ([1, 2, 5, 10].find((factor) => factor * power >= value) ?? 10) * power;
}

function inUnit(value: number, unit: string, decimals = 2): string {
  if (unit === 'percentunit') return `${Number((value * 100).toFixed(decimals))} %`;
  if (unit === 'bytes') return `${Number((value / 2 ** 20).toFixed(0))} MiB`;
  if (unit === 's') {
    if (value === 0) return '0';
    if (value < 1) return `${Number((value * 1_000).toPrecision(3))} ms`;
    return `${Number(value.toPrecision(3))} s`;
  }
  const perSecond = unit === 'reqps' || unit === 'ops' ? '/s' : '';
  return `${Number(value.toPrecision(3))}${perSecond}`;
}

const round = (value: number): number => Math.round(value * 10) / 10;

function safe(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}
