/**
 * The time of a simulated world: events in order, days in milliseconds. It replaces the timers and
 * `Math.random` of the process, so that the service's code runs unchanged. Timers and answers
 * belong to the simulated process that asked for them: a frozen process gets them late, a dead one
 * never.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import type { Clock } from '../../internal/platform/process/clock.ts';
import type { Random } from '../support/random.ts';

/** A pod, which can freeze, die and have a wrong clock. */
export interface SimProcess {
  readonly name: string;
  alive: boolean;
  /** It finishes its work and takes no more. */
  closing: boolean;
  frozenUntil: number;
  skewMs: number;
}

interface Task {
  at: number;
  readonly process: SimProcess | undefined;
  run: (() => void) | undefined;
}

const START = Date.UTC(2026, 0, 1);
/** Events after a freeze come in any order within this time. */
const THAW_MS = 20;
/** More events mean an endless loop. */
const MAX_EVENTS = 400_000;

/** One for all histories, because each new one would slow down later ones. */
const current = new AsyncLocalStorage<SimProcess>();

/** Resolves when no promise and no tick is pending. */
const everythingPending = (): Promise<void> =>
  new Promise((resolve) => process.nextTick(() => process.nextTick(resolve)));
const realSetImmediate = setImmediate;
/** One turn of the event loop, for other work of this process. */
const oneTurn = (): Promise<void> => new Promise((resolve) => realSetImmediate(resolve));

export class Scheduler {
  now = 0;
  events = 0;
  readonly random: Random;
  readonly #tasks: Task[] = [];

  constructor(random: Random) {
    this.random = random;
  }

  get process(): SimProcess | undefined {
    return current.getStore();
  }

  as<T>(process: SimProcess, run: () => T): T {
    return current.run(process, run);
  }

  /** Calls `run` after `delayMs` for the asking process, or for the world. */
  after(delayMs: number, run: () => void, process: SimProcess | undefined = this.process): Task {
    const task: Task = { at: this.now + Math.max(0, delayMs), process, run };
    this.#push(task);
    return task;
  }

  /** Calls `run` after `delayMs`, even if the asking process dies. */
  outside(delayMs: number, run: () => void): void {
    current.exit(() => this.after(delayMs, run, undefined));
  }

  pause(delayMs: number): Promise<void> {
    return new Promise((resolve) => void this.after(delayMs, resolve));
  }

  clockOf(process: SimProcess): Clock {
    return { now: () => new Date(START + this.now + process.skewMs), monotonicMs: () => this.now };
  }

  date(): Date {
    return new Date(START + this.now);
  }

  /** Runs until `done`, at most until `untilMs`; returns whether it is done. */
  async run(untilMs: number, done: () => boolean): Promise<boolean> {
    await everythingPending();
    while (!done()) {
      const task = this.#tasks[0];
      if (task === undefined || task.at > untilMs) {
        this.now = Math.max(this.now, untilMs);
        return done();
      }
      this.#tasks.shift();
      this.now = task.at;
      const { process, run } = task;
      if (run === undefined || process?.alive === false) continue;
      if (process !== undefined && process.frozenUntil > this.now) {
        task.at = process.frozenUntil + this.random.next() * THAW_MS;
        this.#push(task);
        continue;
      }
      if ((this.events += 1) > MAX_EVENTS) throw new Error('the history runs in circles');
      task.run = undefined;
      if (process === undefined) run();
      else this.as(process, run);
      await everythingPending();
    }
    return true;
  }

  /** Replaces timers, time and randomness of this process while `history` runs. */
  async rule<T>(history: () => Promise<T>): Promise<T> {
    const { setTimeout, clearTimeout, setInterval, clearInterval, setImmediate } = globalThis;
    const real = { setTimeout, clearTimeout, setInterval, clearInterval, setImmediate };
    const { random } = Math;
    const cancel = (task: Task | undefined): void => {
      if (task !== undefined) task.run = undefined;
    };
    const every = (run: () => void, ms: number): Task => {
      // One handle for all rounds, so that clearing it ends them.
      const handle: Task = { at: 0, process: undefined, run };
      const round = (): void => {
        if (handle.run === undefined) return;
        handle.run();
        this.after(ms, round);
      };
      this.after(ms, round);
      return handle;
    };
    Object.assign(globalThis, {
      setTimeout: (run: () => void, ms = 0) => this.after(ms, run),
      setInterval: every,
      setImmediate: (run: () => void) => this.after(0, run),
      clearTimeout: cancel,
      clearInterval: cancel,
    });
    Math.random = () => this.random.next();
    const RealDate = Date;
    const localMs = (): number => START + this.now + (this.process?.skewMs ?? 0);
    globalThis.Date = class extends RealDate {
      constructor(...given: [] | ConstructorParameters<typeof RealDate>) {
        super(...((given.length === 0 ? [localMs()] : given) as [number]));
      }
      static override now(): number {
        return localMs();
      }
    } as typeof Date;
    try {
      return await history();
    } finally {
      Object.assign(globalThis, real, { Date: RealDate });
      Math.random = random;
      await oneTurn();
    }
  }

  #push(task: Task): void {
    const before = this.#tasks.findLastIndex(({ at }) => at <= task.at);
    this.#tasks.splice(before + 1, 0, task);
  }
}
