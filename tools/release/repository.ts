/** What a release asks of git and of the last run of the tests. */
import { spawn } from 'node:child_process';
import { mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ROOT } from '../root.ts';
import { run } from '../program.ts';
import type { Version } from './version.ts';

const SUMMARY = '.run/test-summary.json';

export async function git(args: readonly string[]): Promise<string> {
  return (await run('git', args, { cwd: ROOT })).out.trim();
}

export async function isClean(): Promise<boolean> {
  return (await git(['status', '--porcelain'])) === '';
}

/** Puts the files of a commit into `folder`, with the modes that every machine gives them. */
export async function copyOfCommit(
  folder: string,
  name = 'HEAD',
): Promise<{ commit: string; committedAt: number }> {
  await mkdir(folder);
  const archive = `${folder}.tar`;
  await git(['-c', 'tar.umask=0022', 'archive', '--output', archive, name]);
  await run('tar', ['-xf', archive, '-C', folder]);
  const [commit = '', seconds = ''] = (await git(['log', '-1', '--format=%H %ct', name])).split(
    ' ',
  );
  return { commit, committedAt: Number(seconds) };
}

/**
 * Gives what is known of the tests of this commit: the last `make test` wrote it, or it runs now.
 * Only a candidate may go without, and its provenance says so.
 */
export async function checkTests(
  { isPrerelease }: Version,
  mayBeUntested: boolean,
  log: (line: string) => void,
): Promise<string> {
  const known = await testsOfHead();
  if (known !== undefined) return known;
  if (mayBeUntested) {
    if (isPrerelease) return 'not run';
    throw new Error('only a candidate (-rc.N) may be UNTESTED');
  }
  log('this commit has no result of `make test`: running it …');
  await makeTest();
  const result = await testsOfHead();
  if (result === undefined) throw new Error('the tests are not green');
  return result;
}

interface Summary {
  readonly passed: number;
  readonly failed: number;
  readonly leftOut: readonly string[];
  readonly commit?: string;
}

async function testsOfHead(): Promise<string | undefined> {
  const text = await readFile(join(ROOT, SUMMARY), 'utf8').catch(() => '{}');
  const {
    passed = 0,
    failed = 1,
    leftOut = [],
    commit = '',
  } = JSON.parse(text) as Partial<Summary>;
  if (failed > 0 || passed === 0 || commit === '') return undefined;
  // A heading written since changes nothing that a test sees.
  const changed = await git(['diff', '--name-only', commit, 'HEAD', '--', ':!CHANGELOG.md']).catch(
    () => 'unknown',
  );
  return changed === ''
    ? `${passed} passed, 0 failed, ${leftOut.length} files left out`
    : undefined;
}

async function makeTest(): Promise<void> {
  const child = spawn('make', ['test'], { cwd: ROOT, stdio: ['ignore', 2, 2] });
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once('error', reject);
    child.once('exit', resolve);
  });
  if (code !== 0) throw new Error(`make test ended with ${code}`);
}
