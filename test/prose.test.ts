/** No program decides by prose of our own; the words of others are matched in files of their own. */
import { expect, test } from '@jest/globals';
import { found, read } from './support/pages.ts';

/** What servers, libraries and older versions say. */
const ALLOWED = [
  'internal/mail/relay-answers.ts',
  'internal/operators/view/older-words.ts',
  'internal/platform/process/server-causes.ts',
  'internal/platform/process/server-words.ts',
];
const MATCHES = '(?:test|exec|match|matchAll|search|split|startsWith|endsWith|includes|indexOf)';
/** Variables and fields that hold a sentence. */
const PROSE = '(?:words|sentence|reason|message|why|said|told|lastError|fault|warning)s?';

/** A pattern or a text of two words and more, a sentence that is matched or taken apart. */
const SIGNS = [
  new RegExp(
    `/(?![*/])(?:[^/\\n\\\\]|\\\\.)*[a-z]{2} [a-z]{2}(?:[^/\\n\\\\]|\\\\.)*/[a-z]*[.,;)\\s]`,
    'g',
  ),
  new RegExp(`\\.${MATCHES}\\(\\s*['"\`][^'"\`\\n]*[a-z}] [a-z$]`, 'g'),
  new RegExp(`\\b${PROSE}\\??\\.${MATCHES}\\(`, 'g'),
  new RegExp(`\\.(?:test|exec)\\(\\s*(?:\\w+\\??\\.)*${PROSE}\\b`, 'g'),
];

/** Without comments, and with each chain of calls on one line. */
const codeOf = (text: string): string =>
  text.replaceAll(/\/\*[^]*?\*\/|^\s*\/\/.*$/gm, '').replaceAll(/\n\s+(?=\.)/g, '');

const matchesIn = (text: string): string[] =>
  SIGNS.flatMap((sign) => [...codeOf(text).matchAll(sign)].map(([matched]) => matched.trim()));

test('no program matches our own prose', () => {
  const sources = found('{cmd,internal}/**/*.{ts,eta,js}').filter(
    (path) => !path.endsWith('.test.ts') && !ALLOWED.includes(path),
  );
  expect(sources.length).toBeGreaterThan(100);
  expect(
    sources.flatMap((path) => matchesIn(read(path)).map((matched) => `${path}: ${matched}`)),
  ).toEqual([]);
});

test.each([
  'const UNUSABLE = /^the mail server could not be used \\(([^)]*)\\)$/;',
  'reason?.startsWith(`${resendOf(given)} by `)',
  "line.startsWith('operator resend')",
  "issue.message.split('|', 2)",
  'said.find((sentence) => sign.test(sentence))',
  'return /: (?:it refuses the login|we lack a right)/.test(\n    reason,\n  );',
  'UNUSABLE.exec(record.lastError)',
])('%j would be found', (text) => {
  expect(matchesIn(text)).not.toEqual([]);
});
