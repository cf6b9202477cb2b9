/** Times in words: UTC, and the distance from now. */
import { duration } from '../platform/process/terminal.ts';

/** As in "2026-11-21 09:03:11.120". */
export function utc(date: Date): string {
  return date.toISOString().replace('T', ' ').slice(0, -1);
}

/** As in "2026-11-21 09:03:11". */
export function utcSeconds(date: Date): string {
  return utc(date).slice(0, -4);
}

/** As in "3 min 5 s ago" or "in 2 h". */
export function fromNow(date: Date, now: Date): string {
  const distance = date.getTime() - now.getTime();
  return distance > 0 ? `in ${duration(distance)}` : `${duration(-distance)} ago`;
}
