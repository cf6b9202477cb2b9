/** Measures how far this clock is from the database's, which all processes share. */
import type { Db } from 'mongodb';
import type { Clock } from './clock.ts';
import { pause, withDeadline } from './deadline.ts';

/** A clock that is set by hand is noticed within this time. */
const MEASURE_EVERY_MS = 10_000;
const RETRY_MS = 1_000;
const HELLO_DEADLINE_MS = 5_000;

/** Two clocks that differ by 10 s still keep the 35 s of trust within a claim's 45 s. */
export const CLOCK_OFFSET_MAX_MS = 5_000;

/** This clock is too far from the database's to judge whether a claim has ended. */
export class ClockError extends Error {
  override readonly name = 'ClockError';
}

export interface ClockOffset {
  /** Milliseconds this clock is ahead, negative when behind; 0 before the first measurement. */
  ms(): number;
  readonly measured: Promise<void>;
  stop(): void;
}

/** Keeps the last offset while the database is away. */
export function watchClockOffset(options: {
  readonly db: Db;
  readonly clock: Clock;
  readonly onMeasured: (offsetMs: number) => void;
}): ClockOffset {
  const stop = new AbortController();
  const first = Promise.withResolvers<void>();
  let offsetMs = 0;
  const forever = async (): Promise<void> => {
    while (!stop.signal.aborted) {
      const measured = await measure(options.db, options.clock).catch(() => undefined);
      if (measured !== undefined && !stop.signal.aborted) {
        offsetMs = measured;
        options.onMeasured(offsetMs);
        first.resolve();
      }
      await pause(measured === undefined ? RETRY_MS : MEASURE_EVERY_MS, stop.signal);
    }
    first.resolve();
  };
  void forever();
  return { ms: () => offsetMs, measured: first.promise, stop: () => stop.abort() };
}

/** Rejects with `ClockError` if this clock is too far from the database's. */
export async function mustHaveRightClock(db: Db, clock: Clock): Promise<void> {
  const offsetMs = await measure(db, clock);
  if (Math.abs(offsetMs) <= CLOCK_OFFSET_MAX_MS) return;
  throw new ClockError(`the clock here is ${inWords(offsetMs)} the database's`);
}

/** "7 s ahead of" or "7 s behind". */
export function inWords(offsetMs: number): string {
  const direction = offsetMs > 0 ? 'ahead of' : 'behind';
  return `${Math.round(Math.abs(offsetMs) / 1_000)} s ${direction}`;
}

async function measure(db: Db, clock: Clock): Promise<number> {
  const sentAtMs = clock.monotonicMs();
  const hello = await withDeadline(db.command({ hello: 1 }), HELLO_DEADLINE_MS, 'hello');
  const localTime: unknown = hello['localTime'];
  if (!(localTime instanceof Date)) throw new TypeError('the database does not tell its time');
  const halfWayMs = (clock.monotonicMs() - sentAtMs) / 2;
  const offsetMs = clock.now().getTime() - halfWayMs - localTime.getTime();
  // The measurement is uncertain by half the round trip, so only the rest counts.
  return Math.sign(offsetMs) * Math.max(0, Math.abs(offsetMs) - halfWayMs);
}
