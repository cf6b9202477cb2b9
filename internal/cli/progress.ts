/** The progress of a long order. */
import { duration } from '../platform/terminal.ts';
import type { Call } from './command.ts';
import { PROGRESS_EVERY_MS } from './limits.ts';

/** Tells now and then how many are done, the speed and the time that remains. */
export function progressOf(
  total: number | undefined,
  { out, clock }: Pick<Call, 'out' | 'clock'>,
): (count: number) => void {
  const startedMs = clock.monotonicMs();
  let [toldMs, done] = [startedMs, 0];
  return (count) => {
    done += count;
    const now = clock.monotonicMs();
    if (now - toldMs < PROGRESS_EVERY_MS) return;
    toldMs = now;
    const elapsedMs = now - startedMs;
    const rate = Math.round((done * 1_000) / elapsedMs);
    const [of, time] =
      total === undefined
        ? ['', '']
        : [
            ` of about ${total}`,
            `, about ${duration((Math.max(0, total - done) * elapsedMs) / done)} left`,
          ];
    out.note(`${done}${of} requests, ${rate} a second${time}`);
  };
}
