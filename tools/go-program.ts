/**
 * Programs that our commands use and that are built from their Go modules where the machine has
 * none.
 */
import { join } from 'node:path';
import { cacheDir, cached, exists, installLog } from '../deploy/local/stores/cache.ts';
import { buildGoProgram } from '../deploy/local/stores/go.ts';
import { findProgram } from '../deploy/local/stores/process.ts';
import { messageOf } from '../deploy/local/stores/wait.ts';

const PROGRAMS = {
  cosign: {
    package: 'github.com/sigstore/cosign/v3/cmd/cosign',
    version: 'v3.1.3',
    variable: 'COSIGN',
  },
  actionlint: {
    package: 'github.com/rhysd/actionlint/cmd/actionlint',
    version: 'v1.7.12',
    variable: 'ACTIONLINT',
  },
} as const;

export interface Found {
  readonly kind: 'found';
  readonly program: string;
}

export interface Missing {
  readonly kind: 'missing';
  readonly reason: string;
}

/**
 * The one that the program's variable names, else our cache's, else it is built; `missing` says why
 * there is none.
 */
export async function findGoProgram(
  name: keyof typeof PROGRAMS,
  log: (line: string) => void,
): Promise<Found | Missing> {
  const { package: source, version, variable } = PROGRAMS[name];
  const given = process.env[variable] ?? '';
  if (given !== '') {
    return (await exists(given))
      ? { kind: 'found', program: given }
      : { kind: 'missing', reason: `${variable} is set to ${given}, which is not there` };
  }
  const part = `${name}-${version}`;
  const program = join(cacheDir(), part, name);
  if (!(await exists(program)) && (await findProgram('go')) === undefined) {
    return {
      kind: 'missing',
      reason: `${variable} is not set, and there is no Go to build ${name} ${version}`,
    };
  }
  const build = { name: `${name} ${version}`, source: `${source}@${version}` };
  try {
    await cached(part, log, (path) =>
      buildGoProgram(build, path, { log, logFile: installLog(part) }),
    );
    return { kind: 'found', program };
  } catch (error) {
    return { kind: 'missing', reason: messageOf(error) };
  }
}

/** `node tools/go-program.ts cosign` prints where it is. */
if (import.meta.main) {
  const [, , name = ''] = process.argv;
  if (!(name in PROGRAMS))
    throw new Error(`${name} is none of ${Object.keys(PROGRAMS).join(', ')}`);
  const found = await findGoProgram(name as keyof typeof PROGRAMS, (line) => console.error(line));
  if (found.kind === 'missing') throw new Error(found.reason);
  console.log(found.program);
}
