/** Pauses work while this process's clock differs too much from the database's. */
import type { ClockOffset } from '../platform/clock-offset.ts';
import type { Logger } from '../platform/log.ts';
import { CLOCK_OFFSET_MAX_MS } from './limits.ts';

export function clockFaults(offsetMs: number): readonly string[] {
  if (Math.abs(offsetMs) <= CLOCK_OFFSET_MAX_MS) return [];
  const direction = offsetMs > 0 ? 'ahead of' : 'behind';
  return [
    `the clock is ${Math.round(Math.abs(offsetMs) / 1_000)} s ${direction} the database's: no work is taken`,
  ];
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
