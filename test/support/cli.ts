/** Runs the operator's real command as a child process, on a world's stores. */
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { HANG_MS } from './wait.ts';
import { openWorld, type InProcess, type World } from './world.ts';

const PROJECT = fileURLToPath(new URL('../..', import.meta.url));

export interface Ran {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
  /** Standard output as JSON. */
  // oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- each test knows what it asked for
  json<T>(): T;
}

/** Runs `partner-ingest WORDS…`; never rejects because of an exit code. */
export function runCli(environment: Readonly<Record<string, string>>, ...words: readonly string[]): Promise<Ran> {
  return runCliWith(environment, '', ...words);
}

/** The same, with `input` on standard input. */
export async function runCliWith(
  environment: Readonly<Record<string, string>>,
  input: string,
  ...words: readonly string[]
): Promise<Ran> {
  const child = spawn(process.execPath, ['cmd/cli/main.ts', ...words], {
    cwd: PROJECT,
    env: {
      PATH: process.env['PATH'],
      NODE_COMPILE_CACHE: process.env['NODE_COMPILE_CACHE'],
      USER: 'test-operator',
      ...environment,
    },
    stdio: ['pipe', 'pipe', 'pipe'],
    timeout: HANG_MS,
    killSignal: 'SIGKILL',
  });
  // A command that reads no input, or not all of it, may be gone before it is written.
  child.stdin.on('error', () => {}).end(input);
  const output = { stdout: '', stderr: '' };
  for (const name of ['stdout', 'stderr'] as const) {
    child[name].setEncoding('utf8').on('data', (text: string) => (output[name] += text));
  }
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once('error', reject).once('close', (exitCode) => resolve(exitCode));
  });
  // oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- as above
  return { code, ...output, json: <T>() => JSON.parse(output.stdout) as T };
}

/** The command on the stores of `world`, with the same environment as its processes. */
export function cliOf(world: Pick<World, 'environment'>): (...words: readonly string[]) => Promise<Ran> {
  return (...words) => runCli(world.environment, ...words);
}

/** A world with an ingest and a processor, and the command on its stores. */
export async function openOperatorWorld(): Promise<{
  readonly world: World;
  readonly ingest: InProcess;
  readonly cli: ReturnType<typeof cliOf>;
}> {
  const world = await openWorld();
  const ingest = await world.start('ingest');
  await world.start('processor');
  return { world, ingest, cli: cliOf(world) };
}
