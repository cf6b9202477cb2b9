/** Pauses work while this process's clock differs too much from the database's. */
import { CLOCK_OFFSET_MAX_MS, inWords, type ClockOffset } from '../platform/clock-offset.ts';
import type { Logger } from '../platform/log.ts';

export function clockFaults(offsetMs: number): readonly string[] {
  if (Math.abs(offsetMs) <= CLOCK_OFFSET_MAX_MS) return [];
  return [`the clock is ${inWords(offsetMs)} the database's: no work is taken`];
}

export function pauseByClock(
  offset: Pick<ClockOffset, 'ms'>,
  waitForClock: () => void,
  log: Logger,
): () => void {
  let wasOff = false;
  return () => {
    const [fault] = clockFaults(offset.ms());
    if (fault !== undefined && !wasOff) log.error(fault);
    if (fault !== undefined) waitForClock();
    wasOff = fault !== undefined;
  };
}
