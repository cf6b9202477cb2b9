/**
 * The end of `make e2e`: the table of figures, `.run/e2e/result.json` for programs, and the line of
 * counts.
 */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { styleText } from 'node:util';
import { table } from '../../internal/platform/terminal.ts';
import { FOLDER } from './cluster.ts';
import { measured } from './measured.ts';

interface JestResults {
  readonly numPassedTests: number;
  readonly numFailedTests: number;
  readonly numRuntimeErrorTestSuites: number;
  readonly startTime: number;
}

/** Counts as one failure where nothing came to an end: the set-up failed. */
function main(file: string): number {
  const results = existsSync(file)
    ? (JSON.parse(readFileSync(file, 'utf8')) as JestResults)
    : undefined;
  const passed = results?.numPassedTests ?? 0;
  const failed =
    results === undefined ? 1 : results.numFailedTests + results.numRuntimeErrorTestSuites;
  const seconds = results === undefined ? 0 : Math.round((Date.now() - results.startTime) / 1_000);
  const rows = measured();
  const pods = existsSync(join(FOLDER, 'pods.txt'))
    ? readFileSync(join(FOLDER, 'pods.txt'), 'utf8')
    : '';
  if (pods !== '') console.log(`\n$ kubectl get pods\n${pods}`);
  if (rows.length > 0) console.log(`${table(rows.map(({ what, value }) => [what, value]))}\n`);
  mkdirSync(FOLDER, { recursive: true });
  writeFileSync(
    join(FOLDER, 'result.json'),
    `${JSON.stringify({ passed, failed, seconds, measured: rows, pods }, null, 2)}\n`,
  );
  if (failed > 0) console.log(`logs and ledgers are in ${FOLDER}`);
  console.log(
    styleText(
      failed === 0 ? 'green' : 'red',
      `e2e: ${passed} passed, ${failed} failed in ${seconds} s`,
    ),
  );
  return failed === 0 ? 0 : 1;
}

process.exitCode = main(process.argv[2] ?? '');
