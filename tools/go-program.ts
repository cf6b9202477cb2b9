/**
 * Programs that our commands use and that are built from their Go modules where the machine has
 * none.
 */
import { join } from 'node:path';
import { cacheDir, cached, exists, installLog } from '../deploy/local/stores/cache.ts';
import { findProgram, run } from '../deploy/local/stores/process.ts';
import { messageOf } from '../deploy/local/stores/wait.ts';
import { goCommand } from './go.ts';

const BUILD_TIMEOUT_MS = 20 * 60_000;

interface Program {
  readonly package: string;
  readonly version: string;
  /** Names the program to use. */
  readonly variable: string;
  /** Any version on the PATH serves. */
  readonly onPath?: boolean;
}

const PROGRAMS = {
  helm: {
    package: 'helm.sh/helm/v4/cmd/helm',
    version: 'v4.3.1',
    variable: 'HELM',
    onPath: true,
  },
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
  vegeta: {
    package: 'github.com/tsenart/vegeta/v12',
    version: 'v12.12.0',
    variable: 'VEGETA',
    onPath: true,
  },
} as const satisfies Readonly<Record<string, Program>>;

/**
 * The one that the program's variable names, else the PATH's where any serves, else our cache's,
 * else it is built; without `log` nothing is built. Throws with the reason where there is none.
 */
export async function goProgram(
  name: keyof typeof PROGRAMS,
  log?: (line: string) => void,
): Promise<string> {
  const { package: source, version, variable, onPath = false }: Program = PROGRAMS[name];
  const given = process.env[variable] ?? '';
  if (given !== '') {
    if (await exists(given)) return given;
    throw new Error(`there is no ${name}: ${variable} is set to ${given}, which is not there`);
  }
  const found = onPath ? await findProgram(name) : undefined;
  if (found !== undefined) return found;
  const part = `${name}-${version}`;
  const program = join(cacheDir(), part, name);
  if (await exists(program)) return program;
  const none = `there is no ${name}: ${variable} is not set, and ${version} is not in our cache`;
  if (log === undefined) throw new Error(`${none}; \`make prepare\` builds it`);
  try {
    await cached(part, log, (path) => buildGoProgram(`${source}@${version}`, path, part, log));
  } catch (error) {
    throw new Error(`${none}, and building it failed: ${messageOf(error)}`, { cause: error });
  }
  return program;
}

let lastBuild: Promise<void> = Promise.resolve();

/**
 * Builds the program of `source` (`module/path/to/program@version`) into `folder`. One at a time: a
 * build uses all cores, and the next one finds what it has compiled.
 */
export function buildGoProgram(
  source: string,
  folder: string,
  part: string,
  log: (line: string) => void,
): Promise<void> {
  const built = lastBuild.then(async () => {
    const go = await goCommand(log);
    log(`building ${part} with Go (1 to 2 min, once) …`);
    await run({
      command: [go, 'install', '-trimpath', '-ldflags=-s -w', source],
      // Without C all programs share what is compiled of Go's own packages.
      env: { ...process.env, GOBIN: folder, CGO_ENABLED: '0' },
      logFile: installLog(part),
      timeoutMs: BUILD_TIMEOUT_MS,
    });
  });
  lastBuild = built.catch(() => {});
  return built;
}

/** `node tools/go-program.ts cosign` prints where it is. */
if (import.meta.main) {
  const [, , name = ''] = process.argv;
  if (!(name in PROGRAMS))
    throw new Error(`${name} is none of ${Object.keys(PROGRAMS).join(', ')}`);
  console.log(await goProgram(name as keyof typeof PROGRAMS, (line) => console.error(line)));
}
