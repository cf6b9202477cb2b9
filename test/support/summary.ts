/** The summary of `make test`: slowest files, left-out files, results. */
/* oxlint-disable node/no-process-env -- what `make` was told */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { relative } from 'node:path';
import { styleText } from 'node:util';
import { ROOT } from '../../tools/root.ts';
import { table } from '../../internal/operators/view/terminal.ts';
import { foundObstacles, leftOutFiles, needs } from './needs.ts';

interface JestResults {
  readonly numPassedTests: number;
  readonly numFailedTests: number;
  readonly numRuntimeErrorTestSuites: number;
  readonly startTime: number;
  readonly testResults: readonly {
    readonly name: string;
    readonly status: string;
    readonly startTime: number;
    readonly endTime: number;
    readonly assertionResults: readonly { readonly status: string; readonly fullName: string }[];
  }[];
}

const SLOWEST = 10;
/** Marks a test with a long form, whose short form runs. */
const LONG_FORM = 'LONG=1';

/** `e2eFile` has results of the tests in a cluster. */
function main(file: string, e2eFile: string): number {
  if (!existsSync(file)) {
    console.log(`${styleText('red', '0 passed, 1 failed')}: the tests did not come to an end`);
    return 1;
  }
  const results = read(file);
  const runs = existsSync(e2eFile) ? [results, read(e2eFile)] : [results];
  const broken = runs.flatMap(failures);
  const tests = runs.flatMap(({ testResults }) =>
    testResults.flatMap((one) => one.assertionResults),
  );
  const skipped = tests.flatMap(({ status, fullName }) => (status === 'pending' ? fullName : []));
  const unwanted =
    (process.env['REQUIRE_ALL'] ?? '') === ''
      ? []
      : skipped.filter((name) => !name.includes(LONG_FORM));
  const passed = runs.reduce((sum, run) => sum + run.numPassedTests, 0);
  const failed =
    runs.reduce((sum, run) => sum + run.numFailedTests + run.numRuntimeErrorTestSuites, 0) +
    unwanted.length;
  const seconds = Math.round((Date.now() - results.startTime) / 1_000);

  const list = (title: string, lines: readonly string[]): void => {
    if (lines.length > 0)
      console.log(`\n${title}\n${lines.map((line) => `  - ${line}`).join('\n')}`);
  };
  console.log(`\nslowest files:\n${table(slowest(runs))}`);
  const mark = (name: string): string =>
    unwanted.includes(name) ? styleText('red', 'skipped') : 'skipped';
  list(styleText('yellow', 'left out:'), [
    ...filesLeftOut(),
    ...skipped.map((name) => `${mark(name)}: ${name}`),
  ]);
  list(styleText('red', 'failed:'), broken);
  // For programs: a file beside the results.
  const leftOut = leftOutFiles(foundObstacles()).map(({ path }) => path);
  const summary = {
    passed,
    failed,
    leftOut,
    broken: [...broken, ...unwanted],
  };
  writeFileSync(file.replace('-results', '-summary'), JSON.stringify(summary));
  const line = `${passed} passed, ${failed} failed`;
  console.log(
    `\n${styleText(failed === 0 ? 'green' : 'red', line)} ${styleText('dim', `in ${seconds} s`)}`,
  );
  return failed === 0 ? 0 : 1;
}

const read = (file: string): JestResults => JSON.parse(readFileSync(file, 'utf8')) as JestResults;

/** Names of failed tests, and of files that could not run. */
function failures({ testResults }: JestResults): string[] {
  return testResults
    .filter(({ status }) => status === 'failed')
    .flatMap(({ name, assertionResults }) => {
      const failed = assertionResults
        .filter(({ status }) => status === 'failed')
        .map(({ fullName }) => fullName);
      return failed.length > 0 ? failed : [relative(ROOT, name)];
    });
}

function slowest(runs: readonly JestResults[]): string[][] {
  return runs
    .flatMap(({ testResults }) => testResults)
    .map(({ name, startTime, endTime }) => ({
      name: relative(ROOT, name),
      seconds: (endTime - startTime) / 1_000,
    }))
    .toSorted((one, other) => other.seconds - one.seconds)
    .slice(0, SLOWEST)
    .map(({ name, seconds }) => [`${seconds.toFixed(1).padStart(6)} s`, name]);
}

/** One line for each missing need, with the number of its test files. */
function filesLeftOut(): string[] {
  const obstacles = foundObstacles();
  const files = leftOutFiles(obstacles);
  const lines = needs.flatMap((need) => {
    const count = files.filter(({ lacks }) => lacks[0] === need).length;
    const words = count === 1 ? 'test file that needs' : 'test files that need';
    return count === 0 ? [] : `${count} ${words} ${need}: ${oneLine(obstacles[need])}`;
  });
  const { cluster } = obstacles;
  return cluster === undefined
    ? lines
    : [...lines, `tests in a cluster (make e2e): ${oneLine(cluster)}`];
}

const oneLine = (reason = ''): string =>
  reason.replaceAll(/:\s*\n\s*-?\s*/g, ': ').replaceAll(/\s*\n\s*-?\s*/g, '; ');

const [, , ofAll = '', ofE2e = ''] = process.argv;
process.exitCode = main(ofAll, ofE2e);
