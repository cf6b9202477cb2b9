/** How far this process's clock is from the database's, which all processes share. */
import type { Db } from 'mongodb';
import type { Clock } from './clock.ts';
import { pause, withDeadline } from './deadline.ts';

/** Clocks drift slowly; one that is set by hand is noticed this late. */
const MEASURE_EVERY_MS = 10_000;
/** While the database is away. */
const RETRY_MS = 1_000;
const HELLO_DEADLINE_MS = 5_000;

export interface ClockOffset {
  /** Milliseconds this clock is ahead, negative when behind; 0 before the first measurement. */
  ms(): number;
  /** Resolves after the first measurement, or `stop()`. */
  readonly measured: Promise<void>;
  stop(): void;
}

/**
 * Measures until stopped, and calls `onMeasured` each time. The last offset stays while the
 * database is away.
 */
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

async function measure(db: Db, clock: Clock): Promise<number> {
  const sentAtMs = clock.monotonicMs();
  const hello = await withDeadline(db.command({ hello: 1 }), HELLO_DEADLINE_MS, 'hello');
  const localTime: unknown = hello['localTime'];
  if (!(localTime instanceof Date)) throw new TypeError('the database does not tell its time');
  const halfWayMs = (clock.monotonicMs() - sentAtMs) / 2;
  const offsetMs = clock.now().getTime() - halfWayMs - localTime.getTime();
  // A slow network is no wrong clock: only what cannot be its doing counts.
  return Math.sign(offsetMs) * Math.max(0, Math.abs(offsetMs) - halfWayMs);
}
