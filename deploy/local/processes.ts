/**
 * Runs the service's processes as children of this one, which end with it: for `make run` and for
 * tests that kill them.
 */
import { spawn } from 'node:child_process';
import { createWriteStream } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { createInterface } from 'node:readline';
import { killAtExit, tied } from './stores/process.ts';
import { messageOf, retried } from './stores/wait.ts';

export type ServiceName = 'ingest' | 'processor' | 'controller' | 'console';

const PROJECT = fileURLToPath(new URL('../..', import.meta.url));
/** From spawn to the "serving" line: a second or two, a minute where niced. It catches a hang. */
const START_TIMEOUT_MS = 180_000;
/** From "serving" to a 200 of /readyz. */
const READY_TIMEOUT_MS = 180_000;
/** A drain that takes longer is ended by SIGKILL and reported. */
const STOP_TIMEOUT_MS = 60_000;
/** Log lines kept for error messages and assertions. */
const KEPT_LINES = 10_000;

export type ServiceProcess = Awaited<ReturnType<typeof startService>>;

/**
 * Starts one process, from source or as compiled by `make build`, and resolves once it says that it
 * serves. Ports default to free ones on loopback.
 */
export async function startService(
  name: ServiceName,
  environment: Readonly<Record<string, string>>,
  options: {
    readonly logFile?: string;
    readonly compiled?: boolean;
    /** The folder of another version. */
    readonly project?: string;
  } = {},
) {
  const program = options.compiled === true ? `dist/cmd/${name}/main.js` : `cmd/${name}/main.ts`;
  const [command = '', ...args] = await tied([process.execPath, program]);
  const child = spawn(command, args, {
    cwd: options.project ?? PROJECT,
    env: {
      PATH: process.env['PATH'],
      NODE_COMPILE_CACHE: process.env['NODE_COMPILE_CACHE'],
      HTTP_HOST: '127.0.0.1',
      HTTP_PORT: '0',
      CONSOLE_PORT: '0',
      ADMIN_HOST: '127.0.0.1',
      ADMIN_PORT: '0',
      ...environment,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
    // Ctrl-C in the terminal must reach us alone: we decide the order of stopping.
    detached: true,
  });
  killAtExit(child);
  const lines: string[] = [];
  const exited = new Promise<{ code: number | null; signal: NodeJS.Signals | null }>((resolve) => {
    // Not 'exit': what it printed last may still be on its way then.
    child.once('close', (code, signal) => resolve({ code, signal }));
  });
  const file =
    options.logFile === undefined ? undefined : createWriteStream(options.logFile, { flags: 'a' });
  const serving = new Promise<{ url?: string; admin: string }>((resolve, reject) => {
    const timer = setTimeout(
      () => reject(new Error(`${name} did not start:\n${lines.join('\n')}`)),
      START_TIMEOUT_MS,
    );
    const onLine = (line: string): void => {
      lines.push(line);
      if (lines.length > KEPT_LINES) lines.shift();
      file?.write(`${line}\n`);
      if (!line.includes('"msg":"serving"')) return;
      clearTimeout(timer);
      resolve(JSON.parse(line) as { url?: string; admin: string });
    };
    createInterface(child.stdout).on('line', onLine);
    createInterface(child.stderr).on('line', onLine);
    void exited.then(({ code, signal }) => {
      clearTimeout(timer);
      reject(new Error(`${name} ended while starting (${signal ?? code}):\n${lines.join('\n')}`));
      file?.end();
    });
  });
  const { url = '', admin } = await serving.catch((error: unknown) => {
    child.kill('SIGKILL');
    throw error;
  });

  return {
    name,
    child,
    /** Of partners at ingest, of people at the console; the others have none. */
    url,
    adminUrl: admin,
    /** Everything it has printed, newest last, bounded. */
    lines: lines as readonly string[],
    exited,
    /** Resolves when /readyz says so; rejects with its reasons after `timeoutMs`. */
    ready: (timeoutMs = READY_TIMEOUT_MS): Promise<void> =>
      retried(timeoutMs, async () => {
        const signal = AbortSignal.timeout(timeoutMs);
        const response = await fetch(`${admin}/readyz`, { signal });
        if (!response.ok) throw new Error(await response.text());
      }).catch((error: unknown) => {
        const late = `${name} was not ready within ${timeoutMs} ms: ${messageOf(error)}`;
        throw new Error(late, { cause: error });
      }),
    /** SIGTERM, then the exit code; SIGKILL after a minute. */
    stop: async (): Promise<number | null> => {
      const timer = setTimeout(() => child.kill('SIGKILL'), STOP_TIMEOUT_MS);
      child.kill('SIGTERM');
      const { code } = await exited;
      clearTimeout(timer);
      return code;
    },
  };
}
