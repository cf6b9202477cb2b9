/** Measures how far this clock is from the database's, which all processes share. */
import type { Db } from 'mongodb';
import type { Clock } from './clock.ts';
import { pause, withDeadline } from './deadline.ts';

/** A clock that is set by hand is noticed within this time. */
const MEASURE_EVERY_MS = 10_000;
const RETRY_MS = 1_000;
const HELLO_DEADLINE_MS = 5_000;

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
