/**
 * Time of a simulated world: events in order, one at a time, days in milliseconds.
 *
 * For the length of one history this takes over the timers and `Math.random` of the process, so
 * that the code under test runs as it is. Whatever a simulated process starts (a timer, an answer
 * it waits for) belongs to it, across awaits: a frozen process gets it late, a dead one never.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import type { Clock } from '../../internal/platform/clock.ts';
import type { Random } from '../support/random.ts';

/** A pod: it can be frozen, die, and has a wall clock of its own. */
export interface SimProcess {
  readonly name: string;
  alive: boolean;
  /** It ends what it has in hand and takes nothing more. */
  closing: boolean;
  /** Simulated time until which nothing of it runs. */
  frozenUntil: number;
  skewMs: number;
}

interface Task {
  at: number;
  readonly process: SimProcess | undefined;
  run: (() => void) | undefined;
}

const START = Date.UTC(2026, 0, 1);
/** What is late after a freeze comes in any order, within this time. */
const THAW_MS = 20;
/** A history with more events than this runs in circles. */
const MAX_EVENTS = 400_000;

/** One for all histories: what runs would carry each one more forever. */
const current = new AsyncLocalStorage<SimProcess>();

/**
 * Resolves when no promise and no tick is left to run: a tick comes after all promises that are
 * settled before it.
 */
const everythingPending = (): Promise<void> =>
  new Promise((resolve) => process.nextTick(() => process.nextTick(resolve)));
const realSetImmediate = setImmediate;
/** A turn of the event loop, for other work of this process. */
const oneTurn = (): Promise<void> => new Promise((resolve) => realSetImmediate(resolve));

export class Scheduler {
  /** Milliseconds since the start of the history. */
  now = 0;
  events = 0;
  readonly random: Random;
  /** In their order. */
  readonly #tasks: Task[] = [];

  constructor(random: Random) {
    this.random = random;
  }

  get process(): SimProcess | undefined {
    return current.getStore();
  }

  /** Runs `run` as part of `process`. */
  as<T>(process: SimProcess, run: () => T): T {
    return current.run(process, run);
  }

  /**
   * Calls `run` after `delayMs`; for the process that asks, or for the world outside all of them.
   */
  after(delayMs: number, run: () => void, process: SimProcess | undefined = this.process): Task {
    const task: Task = { at: this.now + Math.max(0, delayMs), process, run };
    this.#push(task);
    return task;
  }

  /**
   * Calls `run` after `delayMs`, whatever becomes of the process that asks: it has left its hands.
   */
  outside(delayMs: number, run: () => void): void {
    current.exit(() => this.after(delayMs, run, undefined));
  }

  /** Resolves after `delayMs` of the asking process's life. */
  pause(delayMs: number): Promise<void> {
    return new Promise((resolve) => void this.after(delayMs, resolve));
  }

  /** The local clock of `process`. */
  clockOf(process: SimProcess): Clock {
    return { now: () => new Date(START + this.now + process.skewMs), monotonicMs: () => this.now };
  }

  /** The wall clock of the world, without skew. */
  date(): Date {
    return new Date(START + this.now);
  }

  /** Lets time pass until `done`, at most until `untilMs`; whether it came to be. */
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

  /** Takes over the timers, the time and the randomness of this process while `history` runs. */
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

  /** Behind those of the same time. */
  #push(task: Task): void {
    const before = this.#tasks.findLastIndex(({ at }) => at <= task.at);
    this.#tasks.splice(before + 1, 0, task);
  }
}
