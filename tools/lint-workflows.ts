/** Checks .github/workflows with actionlint; says so where it cannot be had. */
import { spawnSync } from 'node:child_process';
import { styleText } from 'node:util';
import { findGoProgram } from './go-program.ts';

const TIMEOUT_MS = 60_000;

const found = await findGoProgram('actionlint', (line) => console.log(line));
if (found.kind === 'missing') {
  console.log(styleText('yellow', `left out: actionlint: ${found.reason}`));
} else {
  // Helpers that some machines have would make the result differ from machine to machine.
  const args = ['-shellcheck=', '-pyflakes='];
  const { status } = spawnSync(found.program, args, { stdio: 'inherit', timeout: TIMEOUT_MS });
  process.exitCode = status ?? 1;
}
