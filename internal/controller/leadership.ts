/** Leadership by the lease in the document of keys. */
import type { KeyDocuments } from '../partner/key-document.ts';
import type { Clock } from '../platform/clock.ts';
import { DeadlineError } from '../platform/deadline.ts';
import type { Logger } from '../platform/log.ts';
import type { Loop, Loops } from '../platform/loop.ts';
import type { ControllerMetrics } from '../telemetry/metrics.ts';
import {
  LEASE_LOOK_EVERY_MS,
  LEASE_RETRY,
  LEASE_STALE_MS,
  RENEW_DEADLINE_MS,
  RENEW_EVERY_MS,
} from './limits.ts';

export interface LeadershipTools {
  readonly lease: Pick<KeyDocuments, 'take' | 'renew' | 'giveBack'>;
  /** Unique for each start of a process. */
  readonly holder: string;
  readonly clock: Clock & { readonly known?: boolean };
  readonly loops: Pick<Loops<'lease'>, 'start'>;
  readonly log: Logger;
  readonly metrics: Pick<ControllerMetrics, 'leader'>;
}

export class Leadership {
  readonly #tools: LeadershipTools;
  readonly #lead: (term: AbortSignal) => void;
  readonly #loop: Loop;
  #term: AbortController | undefined;
  #deadline: NodeJS.Timeout | undefined;
  #isSeen = false;

  /** `lead` is called when a term begins; its signal aborts when the lease cannot be trusted. */
  constructor(tools: LeadershipTools, lead: (term: AbortSignal) => void) {
    this.#tools = tools;
    this.#lead = lead;
    this.#loop = tools.loops.start({
      name: 'lease',
      needed: true,
      everyMs: () => (this.#term === undefined ? LEASE_LOOK_EVERY_MS : RENEW_EVERY_MS),
      retry: LEASE_RETRY,
      failsAfterMs: LEASE_STALE_MS,
      run: () => this.#takeOrRenew(),
    });
  }

  faults(): readonly string[] {
    return this.#isSeen ? [] : ['the lease in MongoDB has not been read yet'];
  }

  /** Ends the term; the next one begins with what is stored then. */
  resign(): void {
    this.#end();
    this.#loop.wake();
  }

  /** Gives the lease back, so that another process need not wait. */
  async close(): Promise<void> {
    const { lease, holder, log } = this.#tools;
    await this.#loop.stop();
    if (this.#term === undefined) return;
    this.#end();
    await lease
      .giveBack(holder)
      .catch((error: unknown) => log.debug({ err: error }, 'lease not given back'));
  }

  async #takeOrRenew(): Promise<void> {
    const { lease, holder, clock } = this.#tools;
    // Ends of keys are judged by the database's time.
    if (clock.known === false) return;
    const sentAtMs = clock.monotonicMs();
    const isOurs = await (this.#term === undefined ? lease.take(holder) : lease.renew(holder));
    this.#isSeen = true;
    if (!isOurs) return this.#end();
    const leftMs = sentAtMs + RENEW_DEADLINE_MS - clock.monotonicMs();
    if (leftMs <= 0) throw new DeadlineError('the answer came when the lease was over');
    clearTimeout(this.#deadline);
    this.#deadline = setTimeout(() => this.#tooLate(), leftMs);
    if (this.#term === undefined) this.#begin();
  }

  #begin(): void {
    const { holder, log, metrics } = this.#tools;
    this.#term = new AbortController();
    log.info({ holder }, 'leading');
    metrics.leader.set(1);
    this.#lead(this.#term.signal);
  }

  #tooLate(): void {
    const { holder, log } = this.#tools;
    log.warn({ holder }, 'the lease could not be renewed in time');
    this.#end();
  }

  #end(): void {
    const { holder, log, metrics } = this.#tools;
    if (this.#term === undefined) return;
    clearTimeout(this.#deadline);
    this.#term.abort();
    this.#term = undefined;
    metrics.leader.set(0);
    log.info({ holder }, 'no longer leading');
  }
}
