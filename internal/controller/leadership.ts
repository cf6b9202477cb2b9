/** Leadership by the lease in the document of keys. */
import type { Clock } from '../platform/clock.ts';
import { backoffMs, pause } from '../platform/deadline.ts';
import type { Logger } from '../platform/log.ts';
import { mongoReason } from '../platform/mongo.ts';
import type { KeyDocuments } from '../partner/key-document.ts';
import type { ControllerMetrics } from '../telemetry/metrics.ts';
import {
  FAILURE_BACKOFF,
  LEASE_LOOK_EVERY_MS,
  LEASE_STALE_MS,
  RENEW_AGAIN_MS,
  RENEW_DEADLINE_MS,
  RENEW_EVERY_MS,
} from './limits.ts';

/** Must end soon after `signal` aborts. */
export type TermWork = (signal: AbortSignal) => Promise<void>;

export interface LeadershipTools {
  readonly lease: Pick<KeyDocuments, 'take' | 'renew' | 'giveBack'>;
  /** Unique for each start of a process. */
  readonly holder: string;
  readonly clock: Clock & { readonly known?: boolean };
  readonly log: Logger;
  readonly metrics: Pick<ControllerMetrics, 'leader'>;
}

export class Leadership {
  readonly #tools: LeadershipTools;
  #seenAtMs = -Infinity;

  constructor(tools: LeadershipTools) {
    this.#tools = tools;
  }

  faults(): readonly string[] {
    const isSeen = this.#tools.clock.monotonicMs() - this.#seenAtMs < LEASE_STALE_MS;
    return isSeen ? [] : ['the lease in MongoDB cannot be read'];
  }

  async run(work: TermWork, stop: AbortSignal): Promise<void> {
    const { lease, holder, clock, log } = this.#tools;
    for (let failures = 0; !stop.aborted;) {
      try {
        const askedAtMs = clock.monotonicMs();
        // Ends of keys are judged by the database's time.
        const taken = clock.known !== false && (await lease.take(holder));
        this.#seenAtMs = clock.monotonicMs();
        failures = 0;
        if (taken) await this.#lead(askedAtMs, work, stop);
        else await pause(LEASE_LOOK_EVERY_MS, stop);
      } catch (error) {
        failures += 1;
        const reason = mongoReason(undefined, error);
        log[failures === 1 ? 'warn' : 'debug']({ err: error, reason }, 'cannot lead; trying again');
        await pause(backoffMs(failures, FAILURE_BACKOFF), stop);
      }
    }
  }

  /** Gives the lease back, so that another process need not wait. */
  async #lead(takenAtMs: number, work: TermWork, stop: AbortSignal): Promise<void> {
    const { lease, holder, log, metrics } = this.#tools;
    const over = new AbortController();
    const lost = new AbortController();
    const renewing = this.#renew(takenAtMs, over.signal).then(() => lost.abort());
    try {
      log.info({ holder }, 'leading');
      metrics.leader.set(1);
      await work(AbortSignal.any([stop, lost.signal]));
    } finally {
      metrics.leader.set(0);
      log.info({ holder }, 'no longer leading');
      over.abort();
      await renewing;
      await lease
        .giveBack(holder)
        .catch((error: unknown) => log.debug({ err: error }, 'lease not given back'));
    }
  }

  /** Resolves when the lease can no longer be trusted. */
  async #renew(takenAtMs: number, over: AbortSignal): Promise<void> {
    const { lease, holder, clock, log } = this.#tools;
    let renewedAtMs = takenAtMs;
    let waitMs: number = RENEW_EVERY_MS;
    for (;;) {
      const leftMs = renewedAtMs + RENEW_DEADLINE_MS - clock.monotonicMs();
      await pause(Math.max(0, Math.min(waitMs, leftMs)), over);
      if (over.aborted) return;
      const sentAtMs = clock.monotonicMs();
      // A process that was frozen must stop leading.
      if (sentAtMs >= renewedAtMs + RENEW_DEADLINE_MS) {
        log.warn({ holder }, 'the lease could not be renewed in time');
        return;
      }
      try {
        if (!(await lease.renew(holder))) return;
        renewedAtMs = this.#seenAtMs = sentAtMs;
        waitMs = RENEW_EVERY_MS;
      } catch (error) {
        waitMs = RENEW_AGAIN_MS;
        log.debug({ err: error }, 'lease not renewed');
      }
    }
  }
}
