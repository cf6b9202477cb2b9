/** Runs the operator's command on the system of `make run`. */
/* oxlint-disable node/no-process-env -- a child needs the path */
import { spawnSync } from 'node:child_process';
import { userInfo } from 'node:os';
import { ROOT } from '../../tools/root.ts';
import { readRunState } from './run.ts';

const state = await readRunState();
if (state === undefined) {
  console.error('Nothing runs: start it with "make run".');
  process.exit(1);
}
const { status } = spawnSync(process.execPath, ['cmd/cli/main.ts', ...process.argv.slice(2)], {
  cwd: ROOT,
  stdio: 'inherit',
  env: {
    PATH: process.env['PATH'],
    USER: userInfo().username,
    MONGODB_URI: state.mongodbUri,
    MONGODB_DATABASE: state.database,
    CONSOLE_PROCESSES: state.processes,
  },
});
process.exitCode = status ?? 1;
