/** Output for people: aligned, and safe for any quoted text. */
import { stripVTControlCharacters } from 'node:util';

const letters = new Intl.Segmenter();
/** Terminals show these over two columns. */
const WIDE =
  /[\p{Script=Han}\p{Script=Hangul}\p{Script=Hiragana}\p{Script=Katakana}\p{Emoji_Presentation}\u3000-\u303e\uff01-\uff60]/u;

function width(cell = ''): number {
  const shown = [...letters.segment(stripVTControlCharacters(cell))];
  return shown.reduce((sum, { segment }) => sum + (WIDE.test(segment) ? 2 : 1), 0);
}

export function table(rows: readonly (readonly string[])[], indent = '  '): string {
  const widths = (rows[0] ?? []).map((_, column) =>
    Math.max(...rows.map((row) => width(row[column]))),
  );
  return rows
    .map(
      (row) =>
        indent +
        row
          .map((cell, column) => cell + ' '.repeat((widths[column] ?? 0) - width(cell)))
          .join('  ')
          .trimEnd(),
    )
    .join('\n');
}

/** JSON allows C1 and bidirectional controls, which would steer a terminal. */
export function printableJson(value: unknown, indent?: number): string {
  return JSON.stringify(value, undefined, indent).replace(
    /[\u007f-\u009f\p{Zl}\p{Zp}\p{Bidi_Control}]/gu,
    (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

const DURATION_UNITS = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['min', 60_000],
  ['s', 1_000],
] as const;

/** Uses at most two units: "240 ms", "1.2 s", "3 min 5 s", "2 d 4 h". */
export function duration(milliseconds: number): string {
  const total = Math.max(0, Math.round(milliseconds));
  if (total < 1_000) return `${total} ms`;
  if (total < 60_000) return `${(total / 1_000).toFixed(1).replace('.0', '')} s`;
  const index = DURATION_UNITS.findIndex(([, length]) => total >= length);
  const [unit, length] = DURATION_UNITS[index] ?? ['s', 1_000];
  const [smaller, smallerLength] = DURATION_UNITS[index + 1] ?? ['s', 1_000];
  const rest = Math.floor((total % length) / smallerLength);
  return `${Math.floor(total / length)} ${unit}${rest === 0 ? '' : ` ${rest} ${smaller}`}`;
}
