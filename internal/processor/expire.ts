/** Removes raw bodies and data of released accounts, which no TTL index can. */
import { DAY_MS, later, type Clock } from '../platform/clock.ts';
import { pause } from '../platform/deadline.ts';
import type { Logger } from '../platform/log.ts';
import { EXPIRE_EVERY_MS, EXPIRE_PAGES } from './limits.ts';

export interface ExpireTools {
  readonly clock: Clock;
  readonly log: Logger;
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

export async function expireForever(tools: ExpireTools, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    await expireOnce(tools, signal).catch((error: unknown) =>
      tools.log.debug({ err: error }, 'expiry failed'),
    );
    await pause(EXPIRE_EVERY_MS * (0.8 + 0.4 * Math.random()), signal);
  }
}
