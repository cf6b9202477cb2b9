/**
 * A test file that needs what cannot be had is left out by Jest before it is loaded; all others
 * run.
 */
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from '@jest/globals';
import { leftOutFiles, needs, needsOf, ROOT, testFiles } from './needs.ts';

/** Starting Jest takes two seconds. */
const LIST_TIMEOUT_MS = 60_000;

test.each([
  ['test/integration/a.test.ts', '', ['MongoDB and Redis']],
  [
    'test/integration/a.test.ts',
    'await openOwnWorld()',
    ['MongoDB and Redis', 'MongoDB and Redis of our own'],
  ],
  ['test/chart/a.test.ts', "from '../support/chart.ts';", ['Helm']],
  [
    'test/kubernetes/a.test.ts',
    "from '../support/keys-world.ts'",
    ['MongoDB and Redis', 'Helm', 'API server'],
  ],
  ['internal/queue/job.test.ts', "from './job.ts'", []],
])('%s with %j', (path, text, expected) => {
  expect(needsOf(path, text)).toEqual(expected);
});

test('every need is one of some file, and nothing is left out where nothing is missing', () => {
  expect(new Set(testFiles().flatMap((file) => file.needs))).toEqual(new Set(needs));
  expect(leftOutFiles({})).toEqual([]);
});

test(
  'where nothing can be had, Jest runs the files that need nothing, and only these',
  async () => {
    const folder = await mkdtemp(join(tmpdir(), 'needs-'));
    try {
      const file = join(folder, 'obstacles.json');
      await writeFile(
        file,
        JSON.stringify(Object.fromEntries(needs.map((need) => [need, 'not here']))),
      );
      const { stdout } = await promisify(execFile)(
        'npm',
        ['run', '-s', 'jest', '--', '--listTests'],
        {
          cwd: ROOT,
          env: { ...process.env, TEST_OBSTACLES: file },
          timeout: LIST_TIMEOUT_MS,
        },
      );
      const listed = stdout.split('\n').filter((line) => line.startsWith(ROOT));
      const bare = testFiles().filter((each) => each.needs.length === 0);
      expect(bare.length).toBeGreaterThan(20);
      expect(listed.map((path) => path.slice(ROOT.length)).toSorted()).toEqual(
        bare.map(({ path }) => path).toSorted(),
      );
    } finally {
      await rm(folder, { recursive: true });
    }
  },
  LIST_TIMEOUT_MS,
);
