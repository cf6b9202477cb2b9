/** Installs and finds schemathesis. */
import { join } from 'node:path';
import { cached, installLog } from '../../deploy/local/stores/cache.ts';
import { findProgram, run } from '../../deploy/local/stores/process.ts';

const VERSION = '4.32.5';
const INSTALL_TIMEOUT_MS = 5 * 60_000;

/** The Python with schemathesis, installed into the cache if missing. Throws if it cannot. */
export const findSchemathesis = (log?: (line: string) => void): Promise<string> =>
  pythonWith('schemathesis', VERSION, log);

/** The Python of an environment with this package, which is made in the cache if missing. */
export async function pythonWith(
  name: string,
  version: string,
  log: (line: string) => void = () => undefined,
): Promise<string> {
  if ((await findProgram('python3')) === undefined)
    throw new Error('there is no python3 on the PATH');
  const part = `${name}-${version}`;
  const venv = await cached(part, log, async (path) => {
    log(`installing ${name} ${version} (once)`);
    const step = (...command: string[]): Promise<void> =>
      run({ command, logFile: installLog(part), env: process.env, timeoutMs: INSTALL_TIMEOUT_MS });
    await step('python3', '-m', 'venv', path);
    await step(join(path, 'bin/pip'), 'install', '--quiet', `${name}==${version}`);
  });
  return join(venv, 'bin/python');
}
