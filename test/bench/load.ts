/**
 * One run of load against one or several servers: wrk outside, the servers' processor time and
 * memory beside it.
 */
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
  /** Share of one core the servers used. */
  readonly cpu: number;
  /** Processor seconds of each server. */
  readonly perProcess: readonly number[];
  /**
   * Of the servers, the load generator, and each program of stores that runs under this process.
   */
  readonly processorSeconds: Readonly<Record<string, number>>;
  /** Of the largest server. */
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
export async function startProgram(
  file: string,
  environment: Record<string, string>,
): Promise<Program> {
  const path = fileURLToPath(new URL(file, import.meta.url));
  const child = spawn(process.execPath, [path], {
    env: environment,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const exited = new Promise((resolve) => child.once('exit', resolve));
  const stop = async (): Promise<void> => {
    child.kill('SIGTERM');
    await exited;
  };
  for await (const line of createInterface(child.stdout)) {
    // What a package says before it serves.
    if (!line.startsWith('{')) continue;
    const { url } = JSON.parse(line) as { url: string };
    return { url, pid: child.pid ?? 0, stop };
  }
  throw new Error(`${file} ended before it served`);
}

/** Address and process of a server under load. */
export type Server = Pick<Program, 'url' | 'pid'>;

interface Plan {
  readonly key: string;
  readonly connections: number;
  readonly seconds: number;
}

/** Loads one server with `connections` for `seconds`. */
export function load({ url, pid, ...plan }: Server & Plan): Promise<LoadResult> {
  return loadTogether([{ url, pid }], plan);
}

/** Loads all servers at once, each by a wrk of its own with an equal part of the connections. */
export async function loadTogether(servers: readonly Server[], plan: Plan): Promise<LoadResult> {
  const each = { ...plan, connections: plan.connections / servers.length };
  const used = servers.map(({ pid }) => processorSeconds(pid));
  const programs = secondsByProgram();
  const results = await Promise.all(servers.map(({ url }) => wrk(url, each)));
  const perProcess = servers.map(({ pid }, index) => processorSeconds(pid) - used[index]!);
  const sum = (values: readonly number[]): number =>
    values.reduce((total, value) => total + value, 0);
  const highest = (of: (result: Measured) => number): number => Math.max(...results.map(of));
  const seconds = highest((result) => result.seconds);
  return {
    requests: sum(results.map(({ requests }) => requests)),
    seconds,
    p50Ms: highest(({ p50Ms }) => p50Ms),
    p99Ms: highest(({ p99Ms }) => p99Ms),
    maxMs: highest(({ maxMs }) => maxMs),
    badStatus: sum(results.map(({ badStatus }) => badStatus)),
    socketErrors: sum(results.map(({ socketErrors }) => socketErrors)),
    cpu: sum(perProcess) / seconds,
    perProcess,
    processorSeconds: spentOn(programs, secondsByProgram(), sum(perProcess)),
    rssMib: Math.max(...servers.map(({ pid }) => memoryMib(pid))),
  };
}

type Measured = Omit<LoadResult, 'cpu' | 'perProcess' | 'processorSeconds' | 'rssMib'>;

async function wrk(url: string, { key, connections, seconds }: Plan): Promise<Measured> {
  const { stdout } = await run('wrk', [
    '-t1',
    `-c${connections}`,
    `-d${seconds}s`,
    `-s${SCRIPT}`,
    `${url}/api/v1/capital/ingest`,
    '--',
    key,
  ]);
  const result = JSON.parse(/RESULT (.*)/.exec(stdout)?.[1] ?? 'null') as Measured | null;
  if (result === null) throw new Error(`wrk said nothing of use:\n${stdout}`);
  return result;
}
