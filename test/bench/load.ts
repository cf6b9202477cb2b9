/** One run of load against a server by wrk, and the processor time of each part. */
import { spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { endOf, run } from '../../tools/program.ts';
import type { Sample } from './rows.ts';

const SCRIPT = fileURLToPath(new URL('wrk.lua', import.meta.url));
/** Linux counts processor time in hundredths of a second. */
const TICKS_PER_SECOND = 100;

/** Rejects with what to do when wrk is not on this machine. */
export async function checkLoadGenerator(): Promise<void> {
  await endOf('wrk', ['-v']).catch(() => {
    throw new Error('the bench needs wrk: "apt-get install wrk", or your system\'s package');
  });
}

export interface Server {
  readonly url: string;
  readonly pid: number;
}

/** Starts one of the baselines beside this file and waits for its address. */
export async function startProgram(
  file: string,
  env: Record<string, string>,
): Promise<Server & { stop(): Promise<void> }> {
  const path = fileURLToPath(new URL(file, import.meta.url));
  const child = spawn(process.execPath, [path], { env, stdio: ['ignore', 'pipe', 'inherit'] });
  const exited = new Promise((resolve) => child.once('exit', resolve));
  const stop = async (): Promise<void> => {
    child.kill('SIGTERM');
    await exited;
  };
  for await (const line of createInterface(child.stdout)) {
    // Packages may print lines before the address.
    if (!line.startsWith('{')) continue;
    const { url } = JSON.parse(line) as { url: string };
    return { url, pid: child.pid!, stop };
  }
  throw new Error(`${file} ended before it served`);
}

export async function load(
  { url, pid }: Server,
  plan: { readonly key: string; readonly connections: number; readonly seconds: number },
): Promise<Sample> {
  const measure = startProcessorTime(pid);
  const wanted = [`-c${plan.connections}`, `-d${plan.seconds}s`];
  const target = [`${url}/api/v1/capital/ingest`, '--', plan.key];
  const { out } = await run('wrk', ['-t1', ...wanted, `-s${SCRIPT}`, ...target]);
  const { requests, seconds, p99Ms, badStatus } = JSON.parse(
    /RESULT (.*)/.exec(out)?.[1] ?? 'null',
  ) as {
    readonly requests: number;
    readonly seconds: number;
    readonly p99Ms: number;
    readonly badStatus: number;
  };
  if (badStatus > 0) throw new Error('answers other than 2xx, so the figures mean nothing');
  return { count: requests, seconds, p99Ms, processorSeconds: measure() };
}

/**
 * Starts to measure; the result gives the processor seconds since then of the service, and of each
 * program of stores below this process. What has ended by then is wrk.
 */
export function startProcessorTime(pid: number): () => Record<string, number> {
  const [ownBefore, before] = [statOf(pid).seconds, secondsByProgram()];
  return () => {
    const others = Object.entries(secondsByProgram())
      .filter(([program]) => !/node|MainThread/i.test(program))
      .map(([program, seconds]) => [program, seconds - (before[program] ?? 0)] as const)
      .filter(([, seconds]) => seconds > 0);
    return { service: statOf(pid).seconds - ownBefore, ...Object.fromEntries(others) };
  };
}

/**
 * The processor seconds of all descendants of this process, with those of their ended children,
 * summed by the name of their program.
 */
function secondsByProgram(): Record<string, number> {
  const all = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => {
      try {
        return [{ pid: Number(name), ...statOf(Number(name)) }];
      } catch {
        // The process has ended meanwhile.
        return [];
      }
    });
  const sums: Record<string, number> = { wrk: statOf(process.pid).ended };
  const add = (parent: number): void => {
    for (const child of all.filter((one) => one.parent === parent)) {
      sums[child.program] = (sums[child.program] ?? 0) + child.seconds + child.ended;
      add(child.pid);
    }
  };
  add(process.pid);
  return sums;
}

function statOf(pid: number) {
  const [head = '', tail = ''] = readFileSync(`/proc/${pid}/stat`, 'utf8').split(/\) (?=[A-Z] )/);
  const fields = tail.split(' ').map(Number);
  const [user = 0, system = 0, endedUser = 0, endedSystem = 0] = fields.slice(11);
  return {
    program: head.slice(head.indexOf('(') + 1),
    parent: fields[1],
    seconds: (user + system) / TICKS_PER_SECOND,
    ended: (endedUser + endedSystem) / TICKS_PER_SECOND,
  };
}
