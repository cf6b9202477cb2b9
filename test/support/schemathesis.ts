/** Installs and finds schemathesis. */
import { join } from 'node:path';
import { cached, installLog } from '../../deploy/local/stores/cache.ts';
import { findProgram, run } from '../../deploy/local/stores/process.ts';

const VERSION = '4.32.5';
const PART = `schemathesis-${VERSION}`;
const INSTALL_TIMEOUT_MS = 5 * 60_000;

/** The Python with schemathesis, installed into the cache if missing. Throws if it cannot. */
export async function findSchemathesis(
  log: (line: string) => void = () => undefined,
): Promise<string> {
  if ((await findProgram('python3')) === undefined)
    throw new Error('there is no python3 on the PATH');
  const venv = await cached(PART, log, async (path) => {
    log(`installing schemathesis ${VERSION} (once)`);
    const step = (...command: string[]): Promise<void> =>
      run({ command, logFile: installLog(PART), env: process.env, timeoutMs: INSTALL_TIMEOUT_MS });
    await step('python3', '-m', 'venv', path);
    await step(join(path, 'bin/pip'), 'install', '--quiet', `schemathesis==${VERSION}`);
  });
  return join(venv, 'bin/python');
}
