/** A copy of the working tree that tests can be run in while a file of it is changed. */
import { execFileSync, spawn } from 'node:child_process';
import { cp, mkdir, mkdtemp, readFile, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { ROOT } from '../support/needs.ts';

/** A test run that takes longer hangs, which is not green. */
const RUN_DEADLINE_MS = 300_000;

export interface Outcome {
  /** `broken`: a test file could not even be loaded, which says nothing of its tests. */
  readonly result: 'green' | 'red' | 'broken' | 'nothing ran';
  /** Names of the tests that failed, or of the files that were not loaded. */
  readonly failed: readonly string[];
}

export interface Copy {
  readonly folder: string;
  /** Runs this test file; `signal` ends it. */
  test(file: string, environment: NodeJS.ProcessEnv, signal: AbortSignal): Promise<Outcome>;
  remove(): Promise<void>;
}

/** Copies what git knows or would add; the packages are shared. */
export async function copyTree(): Promise<Copy> {
  const folder = await mkdtemp(join(tmpdir(), 'mutants-'));
  const listed = execFileSync('git', ['ls-files', '-co', '--exclude-standard', '-z'], {
    cwd: ROOT,
    encoding: 'utf8',
  });
  for (const file of listed.split('\0').filter((name) => name !== '' && name !== 'node_modules')) {
    await mkdir(dirname(join(folder, file)), { recursive: true });
    // A file that was deleted but not committed is still listed.
    await cp(join(ROOT, file), join(folder, file)).catch(ignoreMissing);
  }
  await symlink(join(ROOT, 'node_modules'), join(folder, 'node_modules'));
  return {
    folder,
    test: (file, environment, signal) => runJest(folder, file, environment, signal),
    remove: () => rm(folder, { recursive: true, force: true }),
  };
}

function ignoreMissing(error: NodeJS.ErrnoException): void {
  if (error.code !== 'ENOENT') throw error;
}

async function runJest(
  folder: string,
  file: string,
  environment: NodeJS.ProcessEnv,
  signal: AbortSignal,
): Promise<Outcome> {
  const results = join(folder, '.mutant-results.json');
  await rm(results, { force: true });
  const jest = ['--experimental-vm-modules', '--single-threaded', 'node_modules/jest/bin/jest.js'];
  const child = spawn(
    process.execPath,
    [
      ...jest,
      '--ci',
      '--passWithNoTests',
      '--json',
      `--outputFile=${results}`,
      '--runInBand',
      '--runTestsByPath',
      file,
    ],
    {
      cwd: folder,
      env: environment,
      stdio: 'ignore',
      // A group of its own, so that what the tests started ends with them.
      detached: true,
    },
  );
  const end = (): void => {
    if (child.pid !== undefined && child.exitCode === null) process.kill(-child.pid, 'SIGKILL');
  };
  const timer = setTimeout(end, RUN_DEADLINE_MS);
  signal.addEventListener('abort', end);
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once('error', reject).once('close', resolve);
  });
  clearTimeout(timer);
  signal.removeEventListener('abort', end);
  return outcomeOf(code, await readFile(results, 'utf8').catch(() => undefined));
}

interface JestResults {
  readonly numPassedTests: number;
  readonly testResults: readonly {
    readonly name: string;
    readonly status: string;
    readonly assertionResults: readonly { readonly status: string; readonly fullName: string }[];
  }[];
}

function outcomeOf(code: number | null, text: string | undefined): Outcome {
  // A test file that this machine cannot run is no test file to Jest.
  if (text === undefined && code === 0) return { result: 'nothing ran', failed: [] };
  if (text === undefined)
    return { result: 'red', failed: [code === null ? 'the tests hang' : 'Jest did not start'] };
  const { numPassedTests, testResults } = JSON.parse(text) as JestResults;
  const failed = testResults.flatMap(({ assertionResults }) =>
    assertionResults.filter((one) => one.status === 'failed').map((one) => one.fullName),
  );
  if (failed.length > 0) return { result: 'red', failed };
  const broken = testResults
    .filter(({ status }) => status === 'failed')
    .map(({ name }) => basename(name));
  if (code !== 0) return { result: 'broken', failed: broken };
  return { result: numPassedTests === 0 ? 'nothing ran' : 'green', failed };
}
