/** One run of load against one server: wrk outside, the server's processor time and memory beside it. */
import { execFile, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { memoryMib, processorSeconds, secondsByProgram, spentOn } from './processor-time.ts';

const run = promisify(execFile);
const SCRIPT = fileURLToPath(new URL('wrk.lua', import.meta.url));

export interface LoadResult {
  readonly requests: number;
  readonly seconds: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly maxMs: number;
  /** Answers other than 2xx and 3xx. */
  readonly badStatus: number;
  readonly socketErrors: number;
  /** Share of one core the server used. */
  readonly cpu: number;
  /** Of the server, the load generator, and each program of stores that runs under this process. */
  readonly processorSeconds: Readonly<Record<string, number>>;
  readonly rssMib: number;
}

/** Rejects with what to do when wrk is not on this machine. */
export async function checkLoadGenerator(): Promise<void> {
  await run('wrk', ['-v']).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT')
      throw new Error('the bench needs wrk: "apt-get install wrk", or your system\'s package');
  });
}

export interface Program {
  readonly url: string;
  readonly pid: number;
  stop(): Promise<void>;
}

/** Starts one of the baselines beside this file and waits for its address. */
export async function startProgram(file: string, environment: Record<string, string>): Promise<Program> {
  const path = fileURLToPath(new URL(file, import.meta.url));
  const child = spawn(process.execPath, [path], { env: environment, stdio: ['ignore', 'pipe', 'inherit'] });
  const exited = new Promise((resolve) => child.once('exit', resolve));
  const stop = async (): Promise<void> => {
    child.kill('SIGTERM');
    await exited;
  };
  for await (const line of createInterface(child.stdout)) {
    const { url } = JSON.parse(line) as { url: string };
    return { url, pid: child.pid ?? 0, stop };
  }
  throw new Error(`${file} ended before it served`);
}

/** Loads `url` with `connections` for `seconds`; `pid` is the server to watch. */
export async function load(options: {
  readonly url: string;
  readonly key: string;
  readonly connections: number;
  readonly seconds: number;
  readonly pid: number;
  /** Each request comes with an idempotency key of its own. */
  readonly keyed?: boolean;
}): Promise<LoadResult> {
  const before = { server: processorSeconds(options.pid), programs: secondsByProgram() };
  const { stdout } = await run('wrk', [
    '-t1',
    `-c${options.connections}`,
    `-d${options.seconds}s`,
    `-s${SCRIPT}`,
    `${options.url}/api/v1/capital/ingest`,
    '--',
    options.key,
    ...(options.keyed === true ? ['keyed'] : []),
  ]);
  const result = JSON.parse(/RESULT (.*)/.exec(stdout)?.[1] ?? 'null') as Omit<
    LoadResult,
    'cpu' | 'processorSeconds' | 'rssMib'
  > | null;
  if (result === null) throw new Error(`wrk said nothing of use:\n${stdout}`);
  const server = processorSeconds(options.pid) - before.server;
  return {
    ...result,
    cpu: server / result.seconds,
    processorSeconds: spentOn(before.programs, secondsByProgram(), server),
    rssMib: memoryMib(options.pid),
  };
}
