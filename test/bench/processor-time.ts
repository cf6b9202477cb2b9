/**
 * The processor time of each part of a run: our processes, the stores, the load generator; and a
 * process's memory.
 */
import { readdirSync, readFileSync } from 'node:fs';

/** Linux counts processor time in hundredths of a second. */
const TICKS_PER_SECOND = 100;
const KIB_PER_MIB = 1_024;

/** Seconds that a process has used since its start. */
export function processorSeconds(pid: number): number {
  const { user, system } = statOf(pid);
  return (user + system) / TICKS_PER_SECOND;
}

/** By program; `ENDED` has all that have ended. */
export type Seconds = Readonly<Record<string, number>>;
export const ENDED = 'ended';

/**
 * Seconds used by all children of this process and theirs, by the name of the program; those that
 * have ended are one.
 */
export function secondsByProgram(): Seconds {
  const all = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => {
      try {
        return [{ pid: Number(name), ...statOf(Number(name)) }];
      } catch {
        // It has ended meanwhile.
        return [];
      }
    });
  const { endedUser, endedSystem } = statOf(process.pid);
  const seconds: Record<string, number> = { [ENDED]: (endedUser + endedSystem) / TICKS_PER_SECOND };
  const add = (parent: number): void => {
    for (const child of all.filter((one) => one.parent === parent)) {
      seconds[child.program] =
        (seconds[child.program] ?? 0) + (child.user + child.system) / TICKS_PER_SECOND;
      add(child.pid);
    }
  };
  add(process.pid);
  return seconds;
}

/** Between two moments: of the server, of each store, and of wrk, which has ended by then. */
export function spentOn(before: Seconds, after: Seconds, server: number): Seconds {
  const programs = Object.entries(after)
    // The server and what is idle beside it.
    .filter(([program]) => !/node|MainThread|redpanda/i.test(program))
    .map(
      ([program, seconds]) =>
        [program === ENDED ? 'wrk' : program, seconds - (before[program] ?? 0)] as const,
    )
    .filter(([, seconds]) => seconds > 0);
  return { server, ...Object.fromEntries(programs) };
}

function statOf(pid: number) {
  const [head = '', tail = ''] = readFileSync(`/proc/${pid}/stat`, 'utf8').split(/\) (?=[A-Z] )/);
  const fields = tail.split(' ').map(Number);
  const [parent = 0] = fields.slice(1);
  const [user = 0, system = 0, endedUser = 0, endedSystem = 0] = fields.slice(11);
  return {
    program: head.slice(head.indexOf('(') + 1),
    parent,
    user,
    system,
    endedUser,
    endedSystem,
  };
}

/** What a process has in memory, in MiB. */
export function memoryMib(pid: number): number {
  return (
    Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / KIB_PER_MIB
  );
}
