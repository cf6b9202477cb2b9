/** Leadership by the lease in the document of keys, and the loops of the process that leads. */
import type { Clock } from '../platform/process/clock.ts';
import type { Logger } from '../platform/process/log.ts';
import type { Loop, LoopOptions, Loops } from '../platform/process/loop.ts';
import type { Probe } from '../platform/process/fault.ts';
import type { ControllerMetrics } from '../telemetry/metrics.ts';
import type { OwnedLease } from './owned-lease.ts';

/**
 * A leader whose renewals fail stops before its lease of 15 s ends: after 9 s, 1 s of back-off and
 * 3 s for a call. Another leads within the promised 20 s: 15 s of lease, 1 s to look, 3 s for a
 * call.
 */
const RENEW_DEADLINE_MS = 9_000;
const RENEW_EVERY_MS = 5_000;
const LOOK_EVERY_MS = 1_000;

type LoopName = 'partner_secrets' | 'partner_status' | 'backlog' | 'audit' | 'old_queue' | 'probe';

/** A loop that works only while this process leads. */
export interface LeaderLoop extends Omit<LoopOptions<LoopName>, 'run'> {
  /** `term` aborts when the lease is lost. */
  run(term: AbortSignal): Promise<unknown>;
  /** Called before the first round and after each term: removes what rounds exported. */
  forget(): void;
}

interface LeadershipTools {
  readonly lease: Pick<OwnedLease, 'acquire' | 'renew' | 'giveBack'>;
  /** Unique for each start of a process. */
  readonly holder: string;
  readonly clock: Clock & { readonly known?: boolean };
  readonly loops: Pick<Loops<'lease' | LoopName>, 'start'>;
  readonly log: Logger;
  readonly metrics: ControllerMetrics;
}

export class Leadership {
  readonly #tools: LeadershipTools;
  readonly #lease: Loop;
  readonly #ofLeader: Loop[] = [];
  #term: AbortController | undefined;
  #renewedAtMs = 0;
  #isSeen = false;

  constructor(tools: LeadershipTools) {
    this.#tools = tools;
    this.#lease = tools.loops.start({
      name: 'lease',
      needed: true,
      everyMs: () => (this.leads ? RENEW_EVERY_MS : LOOK_EVERY_MS),
      retry: { firstMs: 250, capMs: 1_000 },
      failsAfterMs: 30_000,
      run: () => this.#acquireOrRenew(),
    });
  }

  get leads(): boolean {
    return this.#term !== undefined;
  }

  readonly faults: Probe = () =>
    this.#isSeen
      ? []
      : [{ code: 'lease_unread', words: 'the lease in MongoDB has not been read yet' }];

  /** Each term begins with a round of the loop. */
  start(options: LeaderLoop): Loop {
    let last: AbortSignal | undefined;
    options.forget();
    const loop = this.#tools.loops.start({
      ...options,
      run: async () => {
        const term = this.#term?.signal;
        if (term !== last) options.forget();
        last = term;
        if (term !== undefined) await options.run(term);
      },
    });
    this.#ofLeader.push(loop);
    return loop;
  }

  /** Ends the term, so that the next one begins with what is stored. */
  resign(): void {
    this.#end();
    this.#lease.wake();
  }

  /** Gives the lease back, so that another process need not wait. */
  async close(): Promise<void> {
    const { lease, holder, log } = this.#tools;
    await this.#lease.stop();
    if (!this.leads) return;
    this.#end();
    await lease
      .giveBack(holder)
      .catch((error: unknown) => log.debug({ err: error }, 'lease not given back'));
  }

  async #acquireOrRenew(): Promise<void> {
    const { lease, holder, clock, log } = this.#tools;
    // A leader judges the ends of keys by the database's time.
    if (clock.known === false) return;
    const sentAtMs = clock.monotonicMs();
    try {
      const isOurs = await (this.leads ? lease.renew(holder) : lease.acquire(holder));
      this.#isSeen = true;
      if (!isOurs) return this.#end();
      this.#renewedAtMs = sentAtMs;
      if (!this.leads) this.#begin();
    } catch (error) {
      if (this.leads && clock.monotonicMs() - this.#renewedAtMs > RENEW_DEADLINE_MS) {
        log.warn({ holder }, 'the lease could not be renewed in time');
        this.#end();
      }
      throw error;
    }
  }

  #begin(): void {
    const { holder, log, metrics } = this.#tools;
    this.#term = new AbortController();
    log.info({ holder }, 'leading');
    metrics.leader.set(1);
    this.#wakeAll();
  }

  #end(): void {
    const { holder, log, metrics } = this.#tools;
    if (this.#term === undefined) return;
    this.#term.abort();
    this.#term = undefined;
    metrics.leader.set(0);
    log.info({ holder }, 'no longer leading');
    this.#wakeAll();
  }

  #wakeAll(): void {
    for (const loop of this.#ofLeader) loop.wake();
  }
}
