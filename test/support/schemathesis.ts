/**
 * Schemathesis: asks a running service everything its OpenAPI document allows and forbids, and
 * checks the answers.
 */
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { cached, installLog } from '../../deploy/local/stores/cache.ts';
import { findProgram, run } from '../../deploy/local/stores/process.ts';

const VERSION = '4.32.5';
const PART = `schemathesis-${VERSION}`;
const CONFIG = fileURLToPath(new URL('schemathesis.toml', import.meta.url));
const INSTALL_TIMEOUT_MS = 5 * 60_000;

/**
 * The Python that has schemathesis, made in the cache when it is missing; or why it cannot be had
 * here.
 */
export async function findSchemathesis(
  log: (line: string) => void = () => undefined,
): Promise<{ readonly python: string } | string> {
  if ((await findProgram('python3')) === undefined) return 'there is no python3 on the PATH';
  try {
    const venv = await cached(PART, log, async (path) => {
      log(`installing schemathesis ${VERSION} (once)`);
      const step = (...command: string[]): Promise<void> =>
        run({
          command,
          logFile: installLog(PART),
          env: process.env,
          timeoutMs: INSTALL_TIMEOUT_MS,
        });
      await step('python3', '-m', 'venv', path);
      await step(join(path, 'bin/pip'), 'install', '--quiet', `schemathesis==${VERSION}`);
    });
    return { python: join(venv, 'bin/python') };
  } catch (error) {
    const cause = (error as Error).cause ?? error;
    return `schemathesis cannot be installed: ${(cause as Error).message.split('\n')[0]}`;
  }
}

export interface FuzzResult {
  readonly passed: boolean;
  /** What schemathesis printed. */
  readonly output: string;
}

/**
 * Runs all phases with all checks but those `schemathesis.toml` switches off. `keys` are the API
 * keys of the partners it names; `limits` are options such as `--max-time=60`. Stops it after
 * `timeoutMs`.
 */
export async function runSchemathesis(options: {
  readonly python: string;
  readonly documentUrl: string;
  readonly baseUrl: string;
  readonly keys: Readonly<Record<string, string>>;
  readonly limits: readonly string[];
  readonly timeoutMs: number;
}): Promise<FuzzResult> {
  const folder = await mkdtemp(join(tmpdir(), 'schemathesis-'));
  const [keysFile, logFile] = [join(folder, 'keys.json'), join(folder, 'log')];
  const auth = Object.entries(options.keys).map(([name, key]) => ({
    name,
    fixedHeaders: [{ name: 'Authorization', value: `Bearer ${key}` }],
  }));
  try {
    await writeFile(keysFile, JSON.stringify({ auth }), { mode: 0o600 });
    const program = `${options.python} -m schemathesis.cli --config-file ${CONFIG} run`;
    const settings = '--no-color --generation-database=none --continue-on-failure';
    const passed = await run({
      command: [
        ...program.split(' '),
        options.documentUrl,
        `--url=${options.baseUrl}`,
        ...settings.split(' '),
        ...options.limits,
      ],
      logFile,
      env: { ...process.env, PARTNER_KEYS_FILE: keysFile, HYPOTHESIS_STORAGE_DIRECTORY: folder },
      timeoutMs: options.timeoutMs,
    }).then(
      () => true,
      () => false,
    );
    return { passed, output: await readFile(logFile, 'utf8') };
  } finally {
    await rm(folder, { recursive: true });
  }
}
