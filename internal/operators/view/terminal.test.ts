/** Output for people: durations, aligned tables, and text that cannot steer a terminal. */
import { expect, test } from '@jest/globals';
import { printable } from '../../application/fields.ts';
import { duration, printableJson, table } from './terminal.ts';

test.each([
  [999, '999 ms'],
  [1_250, '1.3 s'],
  [185_000, '3 min 5 s'],
  [8 * 3_600_000 + 86_400_000, '1 d 8 h'],
])('%d ms is %s', (milliseconds, words) => {
  expect(duration(milliseconds)).toBe(words);
});

test('cells of wide letters, marks and colours are aligned by the columns they need', () => {
  const cells = [
    '\u5317\u4eac',
    'e\u0301\u200d',
    '\u{1f600}',
    '\u001b[2mAda\u001b[22m',
    'Zo\u00eb',
  ];
  const [needed, ends] = [
    [4, 1, 2, 3, 3],
    table(
      cells.map((cell) => [cell, '|']),
      '',
    ).split('\n'),
  ];
  expect(ends).toEqual(cells.map((cell, row) => `${cell}${' '.repeat(6 - needed[row]!)}|`));
});

test('control characters, line breaks and bidi marks are made visible', () => {
  expect(printable('a\u001b[2J\nb\u0085\u2028\u202ec\ud800')).toBe('a�[2J�b���c�');
});

test('JSON keeps its value and holds no control character for a terminal', () => {
  const value = { name: 'a\u009b2J\u202eb\u2028\u007f\u0001', list: [1] };
  for (const text of [printableJson(value), printableJson(value, 2)]) {
    expect(JSON.parse(text)).toEqual(value);
    expect(text.replaceAll('\n', '')).not.toMatch(/[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/u);
  }
});
