/** Checks .github/workflows with actionlint; says so where it cannot be had. */
import { spawnSync } from 'node:child_process';
import { styleText } from 'node:util';
import { messageOf } from '../deploy/local/stores/wait.ts';
import { goProgram } from './go-program.ts';

const TIMEOUT_MS = 60_000;

try {
  const actionlint = await goProgram('actionlint', (line) => console.log(line));
  // Helpers that some machines have would make the result differ from machine to machine.
  const args = ['-shellcheck=', '-pyflakes='];
  const { status } = spawnSync(actionlint, args, { stdio: 'inherit', timeout: TIMEOUT_MS });
  process.exitCode = status ?? 1;
} catch (error) {
  console.log(styleText('yellow', `left out: ${messageOf(error)}`));
}
