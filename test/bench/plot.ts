/** Draws a bench's accepts per second as an SVG bar chart, one group for each number of connections. */
import { contenders } from './contenders.ts';
import type { Summary } from './report.ts';

const BAR = { width: 44, gap: 8, group: 48 } as const;
const FRAME = { left: 16, top: 56, height: 220, bottom: 56 } as const;
const COLOURS: Readonly<Record<(typeof contenders)[number], string>> = {
  ours: '#1a7f5a',
  naive: '#b3541e',
  bare: '#8a8f98',
};
const NAMES: Readonly<Record<(typeof contenders)[number], string>> = {
  ours: 'partner-ingest',
  naive: 'naive durable',
  bare: 'bare, stores nothing',
};
const LEGEND_STEP = 150;

export function plot(summary: Summary): string {
  const groups = [...new Set(summary.contenders.map(({ connections }) => connections))];
  // Bare Fastify, which stores nothing, would make the other bars too small to read: the scale is logarithmic.
  const highest = Math.max(...summary.contenders.map(({ perSecond }) => perSecond));
  const lowest = 100;
  const height = (rate: number): number =>
    (FRAME.height * Math.log(Math.max(rate, lowest) / lowest)) / Math.log(highest / lowest);
  const groupWidth = contenders.length * (BAR.width + BAR.gap) + BAR.group;
  const width = Math.max(FRAME.left * 2 + groups.length * groupWidth, LEGEND_STEP * contenders.length + FRAME.left * 2);
  const floor = FRAME.top + FRAME.height;
  const parts: string[] = [
    text(FRAME.left, 20, 'Accepts per second, logarithmic scale', 'start', 14),
    ...contenders.flatMap((contender, index) => [
      rectangle(FRAME.left + index * LEGEND_STEP, 30, 12, 12, COLOURS[contender]),
      text(FRAME.left + 18 + index * LEGEND_STEP, 41, NAMES[contender], 'start'),
    ]),
  ];
  for (const [index, connections] of groups.entries()) {
    const left = FRAME.left + index * groupWidth + BAR.group / 2;
    for (const [position, contender] of contenders.entries()) {
      const row = summary.contenders.find(
        (other) => other.connections === connections && other.contender === contender,
      );
      if (row === undefined) continue;
      const [x, tall] = [left + position * (BAR.width + BAR.gap), height(row.perSecond)];
      parts.push(
        rectangle(x, floor - tall, BAR.width, tall, COLOURS[contender]),
        text(x + BAR.width / 2, floor - tall - 5, Math.round(row.perSecond).toLocaleString('en')),
        text(x + BAR.width / 2, floor + 16, `p99 ${row.p99Ms.toFixed(0)} ms`),
      );
    }
    const middle = left + (contenders.length * (BAR.width + BAR.gap) - BAR.gap) / 2;
    parts.push(text(middle, floor + 36, `${connections} connection${connections === 1 ? '' : 's'}`, 'middle', 13));
  }
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${floor + FRAME.bottom}" ` +
    `font-family="sans-serif"><rect width="100%" height="100%" fill="#fff"/>${parts.join('')}</svg>\n`
  );
}

function rectangle(x: number, y: number, width: number, height: number, fill: string): string {
  return `<rect x="${x}" y="${y.toFixed(1)}" width="${width}" height="${height.toFixed(1)}" fill="${fill}"/>`;
}

function text(x: number, y: number, content: string, anchor = 'middle', size = 10): string {
  return `<text x="${x}" y="${y.toFixed(1)}" text-anchor="${anchor}" font-size="${size}">${content}</text>`;
}
