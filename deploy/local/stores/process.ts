// Starts server processes that end with this process, even if it is killed, and signals all of a
// server's processes.

import { spawn, type ChildProcess } from 'node:child_process';
import { closeSync, constants, openSync } from 'node:fs';
import { access, readdir, readFile } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import process from 'node:process';
import { endOf } from '../../../tools/program.ts';
import { logTail, poll } from './wait.ts';

const QUESTION_TIMEOUT_MS = 5_000;
const EXIT_TIMEOUT_MS = 20_000;
const MS_PER_MINUTE = 60_000;
const COMMAND_NAME_END = ') ';
const PARENT_FIELD = 1;

/** Says whether this command ends well; for questions that take no time. */
export function succeeds(command: readonly string[]): Promise<boolean> {
  const [program = '', ...args] = command;
  return endOf(program, args, { timeoutMs: QUESTION_TIMEOUT_MS }).then(
    ({ code }) => code === 0,
    () => false,
  );
}

/** The path of a program on the PATH, or undefined. */
export async function findProgram(name: string): Promise<string | undefined> {
  // oxlint-disable-next-line node/no-process-env -- the PATH is only in the environment
  for (const directory of (process.env['PATH'] ?? '').split(delimiter)) {
    const file = join(directory, name);
    if (
      directory !== '' &&
      (await access(file, constants.X_OK).then(
        () => true,
        () => false,
      ))
    )
      return file;
  }
  return undefined;
}

/**
 * Puts a command behind `setpriv`, so that the kernel kills it when this process dies in whatever
 * way. Where there is no setpriv (macOS) the command stays as it is, and is only ended on an
 * orderly exit.
 */
export async function tied(command: readonly string[]): Promise<string[]> {
  const setpriv = await findProgram('setpriv');
  return setpriv === undefined ? [...command] : [setpriv, '--pdeathsig=KILL', '--', ...command];
}

export interface Command {
  command: readonly string[];
  logFile: string;
  env?: NodeJS.ProcessEnv | undefined;
  /** Lets the command come to its end even if this process dies: for what must not be cut off. */
  untied?: boolean;
}

async function spawnTied(options: Command): Promise<ChildProcess> {
  const [program = '', ...args] =
    options.untied === true ? options.command : await tied(options.command);
  const log = openSync(options.logFile, 'a');
  try {
    // detached: an own session, so that Ctrl-C reaches only the caller, who decides the order of
    // closing.
    return spawn(program, args, { stdio: ['ignore', log, log], detached: true, env: options.env });
  } finally {
    closeSync(log);
  }
}

/**
 * Runs a command to its end with its output in the log file; throws with the end of the log when it
 * fails or is too slow.
 */
export async function run(options: Command & { timeoutMs: number }): Promise<void> {
  const child = await spawnTied(options);
  let late = false;
  const timer = setTimeout(() => {
    late = true;
    child.kill('SIGKILL');
  }, options.timeoutMs);
  const why = await new Promise<string | undefined>((resolve) => {
    child.once('error', (error) => resolve(error.message));
    child.once('exit', (code, signal) =>
      resolve(code === 0 ? undefined : `ended with ${signal ?? `exit code ${code}`}`),
    );
  });
  clearTimeout(timer);
  const end = late ? `took longer than ${options.timeoutMs / MS_PER_MINUTE} min` : why;
  if (end !== undefined)
    throw new Error(`${options.command[0]} ${end}; ${await logTail(options.logFile)}`);
}

export type ServerProcess = Awaited<ReturnType<typeof startProcess>>;

const killedAtExit = new Set<number>();
function killAll(): void {
  for (const pid of killedAtExit) send(pid, 'SIGKILL');
}

/**
 * Kills the child when this process exits by itself. With setpriv the kernel does the same, and for
 * SIGKILL too.
 */
export function killAtExit(child: ChildProcess): void {
  const { pid } = child;
  if (pid === undefined) return;
  if (killedAtExit.size === 0) process.once('exit', killAll);
  killedAtExit.add(pid);
  child.once('exit', () => {
    killedAtExit.delete(pid);
    if (killedAtExit.size === 0) process.off('exit', killAll);
  });
}

/**
 * Starts a server. `wrapped` says that the spawned process only waits for the server, its one child
 * (`unshare --fork`): signals are then for the child.
 */
export async function startProcess(options: Command & { wrapped: boolean }) {
  const child = await spawnTied(options);
  let ended = false;
  const exited = new Promise<void>((resolve) => {
    function noteEnd(): void {
      ended = true;
      resolve();
    }
    child.once('exit', noteEnd);
    child.once('error', noteEnd);
  });
  // A caller that forgets to stop a server can still exit; the server then ends with it.
  child.unref();
  const { pid } = child;
  if (pid === undefined) {
    await exited;
    throw new Error(`could not start ${options.command[0]}`);
  }
  const top = pid;
  killAtExit(child);

  async function pids(): Promise<number[]> {
    if (ended) return [];
    const below = await descendants(top);
    return options.wrapped ? below : [top, ...below];
  }
  /** Signals the server and all its children. Does nothing when it has ended. */
  async function signal(name: NodeJS.Signals): Promise<void> {
    // Parents first, then once more for what a parent started before the signal reached it.
    const told = new Set<number>();
    for (
      let news = await pids();
      news.length > 0;
      news = (await pids()).filter((one) => !told.has(one))
    ) {
      for (const one of news) {
        told.add(one);
        send(one, name);
      }
    }
  }
  /**
   * Sends the signal to the server alone, and waits until it and all its children are gone; kills
   * them when that takes too long.
   */
  async function end(name: NodeJS.Signals): Promise<void> {
    if (ended) return;
    const [server] = await pids();
    if (server !== undefined) send(server, name);
    child.ref();
    if (!(await poll(EXIT_TIMEOUT_MS, () => Promise.resolve(ended)))) {
      await signal('SIGKILL');
      send(top, 'SIGKILL');
      await exited;
    }
  }
  return { logFile: options.logFile, running: (): boolean => !ended, signal, end };
}

/** Waits until a server that was started is up; ends it and throws when it has ended or is late. */
export async function waitUntilUp(
  name: string,
  server: ServerProcess,
  timeoutMs: number,
  isUp: () => Promise<boolean>,
): Promise<void> {
  const answered = await poll(timeoutMs, async () => !server.running() || (await isUp()));
  if (answered && server.running()) return;
  await server.end('SIGKILL');
  throw new Error(`${name} did not start; ${await logTail(server.logFile)}`);
}

/** Says whether an HTTP server answers well at this address. */
export async function answersWell(url: string): Promise<boolean> {
  return await fetch(url, { signal: AbortSignal.timeout(QUESTION_TIMEOUT_MS) }).then(
    ({ ok }) => ok,
    () => false,
  );
}

function send(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch {
    // It has ended meanwhile. A caller that wanted another signal sees that nothing runs.
  }
}

/** Says whether a process of this number is there. */
export function alive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // Not `instanceof Error`: in Jest the errors of Node are of another realm.
    return typeof error === 'object' && error !== null && 'code' in error && error.code === 'EPERM';
  }
}

/**
 * All processes below this one, parents before children. PostgreSQL's children leave its process
 * group, so a group is not enough.
 */
async function descendants(top: number): Promise<number[]> {
  const children = new Map<number, number[]>();
  const names = await readdir('/proc').catch(() => []);
  await Promise.all(
    names.map(async (name) => {
      const pid = Number(name);
      if (!Number.isInteger(pid)) return;
      const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '');
      // The command's name stands in brackets and may hold spaces; state and parent follow it.
      const fields = stat
        .slice(stat.lastIndexOf(COMMAND_NAME_END) + COMMAND_NAME_END.length)
        .split(' ');
      const parent = Number(fields[PARENT_FIELD]);
      children.set(parent, [...(children.get(parent) ?? []), pid]);
    }),
  );
  const found: number[] = [];
  const next = [top];
  for (let pid = next.shift(); pid !== undefined; pid = next.shift()) {
    const below = children.get(pid) ?? [];
    found.push(...below);
    next.push(...below);
  }
  return found;
}
