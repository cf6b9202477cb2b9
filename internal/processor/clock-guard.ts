/**
 * Whether this process's clock is good enough to work by: claims and waits are compared with those
 * of other processes.
 */
import type { ClockOffset } from '../platform/clock-offset.ts';
import type { Logger } from '../platform/log.ts';
import { CLOCK_OFFSET_MAX_MS } from './limits.ts';

/** Why this process takes no work; empty when its clock is good enough. */
export function clockFaults(offsetMs: number): readonly string[] {
  if (Math.abs(offsetMs) <= CLOCK_OFFSET_MAX_MS) return [];
  const direction = offsetMs > 0 ? 'ahead of' : 'behind';
  return [
    `the clock is ${Math.round(Math.abs(offsetMs) / 1_000)} s ${direction} the database's: no work is taken`,
  ];
}

/**
 * Pauses the workers after a measurement that is too far off; their gates open by the same rule.
 */
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
