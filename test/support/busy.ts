/** `make test-busy`: all tests again and again, in random order, while busy loops take the processor from them. */
/* oxlint-disable node/no-process-env -- what `make` was told goes on to the `make` below */
import { spawn } from 'node:child_process';
import { createWriteStream, mkdirSync } from 'node:fs';
import { paint } from '../../internal/platform/terminal.ts';

const BUSY_LOOPS = 4;
const FOLDER = '.run/busy';
/** Ends by itself once whoever started it is gone, even by SIGKILL. */
const LOOP = 'const parent = process.ppid; while (process.ppid === parent);';

/** One `make test`; gives its exit code and its last line. All it says is kept in `log`. */
async function runTests(log: string): Promise<{ readonly code: number | null; readonly line: string }> {
  const file = createWriteStream(log);
  const make = spawn('make', ['--no-print-directory', 'test', 'ORDER=random'], { stdio: ['ignore', 'pipe', 'pipe'] });
  let last = '';
  for (const stream of [make.stdout, make.stderr]) stream.pipe(file, { end: false });
  make.stdout.on('data', (text: Buffer) => (last = (last + text.toString()).slice(-1_000)));
  const code = await new Promise<number | null>((resolve, reject) => {
    make.once('error', reject).once('close', resolve);
  });
  file.end();
  return { code, line: last.trimEnd().split('\n').at(-1) ?? '' };
}

async function main(runs: number): Promise<number> {
  if (!Number.isInteger(runs) || runs < 1) {
    console.error('usage: make test-busy (RUNS=5 TESTS=path)');
    return 2;
  }
  mkdirSync(FOLDER, { recursive: true });
  const loops = Array.from({ length: BUSY_LOOPS }, () => spawn(process.execPath, ['-e', LOOP], { stdio: 'ignore' }));
  process.once('exit', () => loops.forEach((loop) => loop.kill('SIGKILL')));
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(1));
  let red = 0;
  for (let run = 1; run <= runs; run += 1) {
    const log = `${FOLDER}/run-${run}.log`;
    const { code, line } = await runTests(log);
    if (code !== 0) red += 1;
    console.log(`run ${run}: ${line}${code === 0 ? '' : `; ${paint('red', `exit ${code}`)}, see ${log}`}`);
  }
  console.log(
    paint(red === 0 ? 'green' : 'red', `${runs - red} of ${runs} runs green beside ${BUSY_LOOPS} busy loops`),
  );
  return red === 0 ? 0 : 1;
}

process.exitCode = await main(Number(process.argv[2]));
// The loops are children: without this the process would wait for them.
process.exit();
