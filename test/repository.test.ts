/** Checks packages, names outside the repository and banned words. */
import { expect, test } from '@jest/globals';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from '../tools/root.ts';
import { lockFaults } from '../tools/lock.ts';
import { apiKeyProblem, hashApiKey, isPublishedKey } from '../internal/partner/api-key.ts';

const NOT_OURS = /(^|\/)(node_modules|dist|coverage|\.git|\.run)(\/|$)/;
const NO_TEXT = /\.(png|jpg|ico)$/;
/** These files may name the cluster of the tests. */
const MAY_NAME_OTHERS = ['.ci/run', 'test/repository.test.ts'];
const OUTSIDE =
  /\.\.\/shared\b|\b(SPEC|DESIGN)(\.md)?\b ?§|\b(SPEC|DESIGN|FACTS|ECOSYSTEM|STYLE)\.md\b|localhost\/local-cluster/g;

/** Every text file, by path from the root. */
const files = readdirSync(ROOT, { recursive: true, encoding: 'utf8' })
  .filter(
    (path) => !NOT_OURS.test(path) && !NO_TEXT.test(path) && statSync(join(ROOT, path)).isFile(),
  )
  .map((path) => ({ path, text: readFileSync(join(ROOT, path), 'utf8') }));

test('every package of the lock file has its hash for every platform, and no registry', () => {
  const lock = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8')) as Parameters<
    typeof lockFaults
  >[0];
  expect(Object.keys(lock.packages).length).toBeGreaterThan(100);
  expect(lockFaults(lock)).toEqual([]);
});

test('no file names a path or host outside the repository', () => {
  expect(files.length).toBeGreaterThan(200);
  const named = files
    .filter(({ path }) => !MAY_NAME_OTHERS.includes(path))
    .flatMap(({ path, text }) => [...text.matchAll(OUTSIDE)].map(([words]) => `${path}: ${words}`));
  expect(named).toEqual([]);
});

test('no text that begins pik_ is a key, but the two published ones', () => {
  const isTest = /(^test\/)|\.test\.ts$/;
  const texts = files
    .filter(({ path }) => !isTest.test(path))
    .flatMap(({ text }) => text.match(/pik_[\w.~+/=-]*/g) ?? []);
  const accepted = texts.filter((text) => apiKeyProblem(text, { older: true }) === undefined);
  expect(new Set(accepted).size).toBe(2);
  expect(accepted.filter((text) => !isPublishedKey(hashApiKey(text)))).toEqual([]);
});

/** Banned words with their replacements. */
const BANNED: readonly (readonly [RegExp, string])[] = [
  [/\banew\b/i, 'again'],
  [/\bmend(?:s|ed|ing)?\b/i, 'correct, repair'],
  [/\bwhoever\b/i, 'the person or the process by name'],
  [/\bdeeds?\b/i, 'action'],
  [/\bso many\b/i, 'the number'],
  [/\bfor ever\b/i, 'forever, or the time'],
  [/\bblacklist|whitelist\b/i, 'blocked, allowed'],
  [/\bquarantine/i, 'on hold'],
];

test('no page or comment uses a word of the list of worse words', () => {
  const used = files
    .filter(({ path }) => path !== 'test/repository.test.ts' && path !== 'package-lock.json')
    .flatMap(({ path, text }) =>
      BANNED.flatMap(([word, better]) => {
        const found = word.exec(text)?.[0];
        return found === undefined ? [] : [`${path}: "${found}": ${better}`];
      }),
    );
  expect(used).toEqual([]);
});

test('workflows use each action by commit, not by tag', () => {
  const uses = files
    .filter(({ path }) => path.startsWith('.github/workflows/'))
    .flatMap(({ text }) => [...text.matchAll(/uses: (.*)$/gm)].map(([, action = '']) => action));
  expect(uses.length).toBeGreaterThan(0);
  expect(uses.filter((action) => !/^[\w-]+\/[\w-]+@[0-9a-f]{40} # v[\d.]+$/.test(action))).toEqual(
    [],
  );
});

test('.node-version is the version of Node that is fetched', () => {
  const [, version] =
    /^version=(\S+)$/m.exec(readFileSync(join(ROOT, 'deploy/local/with-node.sh'), 'utf8')) ?? [];
  expect(readFileSync(join(ROOT, '.node-version'), 'utf8').trim()).toBe(version);
});
