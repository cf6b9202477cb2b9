/** The list of mutants fits the code. */
import { expect, test } from '@jest/globals';
import { existsSync, readFileSync } from 'node:fs';
import { stripTypeScriptTypes } from 'node:module';
import { join } from 'node:path';
import { ROOT } from '../../tools/root.ts';
import { mutants, mutated } from './list.ts';

/** A run of all then takes ten minutes. */
const AT_MOST = 60;

test.each(mutants)('$file: $find', (mutant) => {
  const file = join(ROOT, mutant.file);
  const text = existsSync(file) ? mutated(readFileSync(file, 'utf8'), mutant) : undefined;
  expect(text).toEqual(expect.any(String));
  // A syntax error would turn every test red.
  if (file.endsWith('.ts')) stripTypeScriptTypes(text ?? '');
  expect(mutant.replace).not.toBe(mutant.find);
  expect(existsSync(join(ROOT, mutant.test))).toBe(true);
});

test('each mutant breaks a promise of docs/proof.md, and their number is bounded', () => {
  const proof = readFileSync(join(ROOT, 'docs/proof.md'), 'utf8').replaceAll(/\s+/g, ' ');
  const promises = [...new Set(mutants.map(({ promise }) => promise))];
  expect(promises.filter((promise) => !proof.includes(`- ${promise}: `))).toEqual([]);
  expect(promises.length).toBeGreaterThan(5);
  expect(mutants.length).toBeLessThanOrEqual(AT_MOST);
});
