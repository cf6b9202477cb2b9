/**
 * The database's time, for all processes; the monotonic clock continues it between measurements.
 */
import type { Db } from 'mongodb';
import type { Probe } from '../process/fault.ts';
import { systemClock, type Clock } from '../process/clock.ts';
import { withDeadline } from '../process/deadline.ts';
import type { Loop, Loops } from '../process/loop.ts';

const MEASURE_EVERY_MS = 10_000;
const RETRY = { firstMs: 250, capMs: 1_000 } as const;
const FAILS_AFTER_MS = 60_000;
const HELLO_DEADLINE_MS = 5_000;
/** A clock drifts or is gradually corrected by less between two measurements. */
const STEP_MS = 5_000;

/**
 * Only the local monotonic time is read, so a jump of the local clock changes nothing. Before the
 * first measurement the time is the local one: a process must not work until `known`.
 */
export class DatabaseClock implements Clock {
  readonly monotonicMs: () => number;
  /** The database's time minus our monotonic time. */
  #offsetMs: number;
  #known = false;
  #steppedAtMs: number | undefined;

  constructor(local: Clock = systemClock) {
    this.monotonicMs = local.monotonicMs.bind(local);
    this.#offsetMs = local.now().getTime() - local.monotonicMs();
  }

  get known(): boolean {
    return this.#known;
  }

  /** Monotonic time of the last jump over `STEP_MS`, as after a failover. */
  get steppedAtMs(): number | undefined {
    return this.#steppedAtMs;
  }

  now(): Date {
    return new Date(this.monotonicMs() + this.#offsetMs);
  }

  /** The database read its clock between request and answer, which bounds the offset. */
  async measure(db: Pick<Db, 'command'>): Promise<void> {
    const sentAtMs = this.monotonicMs();
    const hello = await withDeadline(db.command({ hello: 1 }), HELLO_DEADLINE_MS, 'hello');
    const { localTime } = hello as { readonly localTime?: unknown };
    if (!(localTime instanceof Date)) throw new TypeError('the database does not tell its time');
    const most = localTime.getTime() - sentAtMs;
    const least = localTime.getTime() - this.monotonicMs();
    // An offset within the bounds is kept, to avoid swings.
    const known = this.#known ? this.#offsetMs : (least + most) / 2;
    const offsetMs = Math.min(most, Math.max(least, known));
    if (this.#known && Math.abs(offsetMs - this.#offsetMs) > STEP_MS)
      this.#steppedAtMs = this.monotonicMs();
    this.#offsetMs = offsetMs;
    this.#known = true;
  }

  follow(db: Pick<Db, 'command'>, loops: Pick<Loops<'clock'>, 'start'>): Loop {
    return loops.start({
      name: 'clock',
      everyMs: MEASURE_EVERY_MS,
      retry: RETRY,
      failsAfterMs: FAILS_AFTER_MS,
      run: () => this.measure(db),
    });
  }

  readonly faults: Probe = () =>
    this.#known ? [] : [{ code: 'time_unknown', words: "the database's time is not known yet" }];
}
