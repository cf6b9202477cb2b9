/** Removes raw bodies and data of released accounts, which no TTL index can. */
import { DAY_MS, later, type Clock } from '../platform/clock.ts';
import { EXPIRE_PAGES } from './limits.ts';

export interface ExpireTools {
  readonly clock: Clock;
  readonly releasedDays: number;
  /** True if more may be due. */
  removeBodies(): Promise<boolean>;
  forgetReleased(until: Date): Promise<boolean>;
}

export async function expireOnce(tools: ExpireTools, signal?: AbortSignal): Promise<void> {
  const until = later(tools.clock.now(), -tools.releasedDays * DAY_MS);
  for (const page of [() => tools.removeBodies(), () => tools.forgetReleased(until)]) {
    for (let pages = 0; pages < EXPIRE_PAGES; pages += 1) {
      if (signal?.aborted === true || !(await page())) break;
    }
  }
}
