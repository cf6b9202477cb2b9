/** The list of mutants fits the code. */
import { expect, test } from '@jest/globals';
import { existsSync, readFileSync } from 'node:fs';
import { stripTypeScriptTypes } from 'node:module';
import { join } from 'node:path';
import { SourceTextModule } from 'node:vm';
import { ROOT } from '../../tools/root.ts';
import { breaks } from '../upgrade/versions.ts';
import { mutants, mutated, type Change } from './list.ts';

/** A run of all then takes eleven minutes. */
const AT_MOST = 66;

const ofUpgrades = Object.values(breaks).flatMap(({ edits }) => edits);

test.each<Change & { readonly test?: string }>([...mutants, ...ofUpgrades])(
  '$file: $find',
  (change) => {
    const file = join(ROOT, change.file);
    const text = existsSync(file) ? mutated(readFileSync(file, 'utf8'), change) : undefined;
    expect(text).toEqual(expect.any(String));
    // With a syntax error no test would run.
    const compile = (): unknown => new SourceTextModule(stripTypeScriptTypes(text ?? ''));
    if (file.endsWith('.ts')) expect(compile).not.toThrow();
    expect(change.replace).not.toBe(change.find);
    if (change.test !== undefined) expect(existsSync(join(ROOT, change.test))).toBe(true);
  },
);

test('each mutant breaks a promise of docs/proof.md, and their number is bounded', () => {
  const proof = readFileSync(join(ROOT, 'docs/proof.md'), 'utf8').replaceAll(/\s+/g, ' ');
  const promises = [...new Set(mutants.map(({ promise }) => promise))];
  expect(promises.filter((promise) => !proof.includes(`- ${promise}: `))).toEqual([]);
  expect(promises.length).toBeGreaterThan(5);
  expect(mutants.length).toBeLessThanOrEqual(AT_MOST);
});
