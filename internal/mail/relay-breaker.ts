/**
 * Stops all mail while the relay takes none: it is unreachable, refuses our login or sender, or has
 * no capacity before it knows the recipient.
 *
 * The mailer's probe asks just that, up to MAIL FROM. So a pause ends without an e-mail, and no
 * recipient's server has a say in it. Probes follow after 250 ms, doubling to 15 s; the wait starts
 * again at 250 ms once the relay has taken an e-mail.
 */
import type { Clock } from '../platform/clock.ts';
import { backoffMs, pause } from '../platform/deadline.ts';
import type { Logger } from '../platform/log.ts';
import type { HandOver, Outage } from './relay-answers.ts';

/** The place of an e-mail that the relay has no capacity for, while it takes others. */
export const REST_MS = 1_000;
/** At most 15 s with its jitter. */
const PROBE_BACKOFF = { firstMs: 250, capMs: 12_500 } as const;

export interface BreakerOptions {
  /** Never rejects. */
  probe(): Promise<Outage | undefined>;
  /** Called for each failed probe too. */
  readonly onOutage: (outage: Outage | undefined) => void;
  readonly clock: Pick<Clock, 'monotonicMs'>;
  readonly log: Logger;
}

export class RelayBreaker {
  readonly #options: BreakerOptions;
  readonly #onChange: () => void;
  readonly #stop = new AbortController();
  #outage: Outage | undefined;
  #failures = 0;
  #tookAtMs = -Infinity;
  #resumedAtMs = -Infinity;

  constructor(options: BreakerOptions, onChange: () => void) {
    this.#options = options;
    this.#onChange = onChange;
  }

  get outage(): Outage | undefined {
    return this.#outage;
  }

  /** `rest`: the relay refuses this one and takes others, as with too many connections. */
  note(handOver: HandOver, beganAtMs: number): 'mail' | 'relay' | 'rest' {
    const nowMs = this.#options.clock.monotonicMs();
    const outage = 'outage' in handOver ? handOver.outage : undefined;
    if (outage === undefined) {
      // Whatever became of the mail, the relay took our sender.
      if (!['aborted', 'unreachable'].includes(handOver.result)) {
        this.#tookAtMs = nowMs;
        this.#failures = 0;
      }
      return 'mail';
    }
    // An earlier mail says nothing about the relay's present state.
    if (this.#outage !== undefined || beganAtMs < this.#resumedAtMs) return 'relay';
    if (outage.reason === 'no_capacity' && nowMs - this.#tookAtMs < REST_MS) return 'rest';
    this.#set(outage);
    void this.#probeUntilTaken();
    return 'relay';
  }

  /** A relay that takes none of our mail is told before the first e-mail. */
  async greet(): Promise<void> {
    const outage = await this.#options.probe();
    if (this.#outage !== undefined || this.#stop.signal.aborted) return;
    this.#set(outage);
    await this.#probeUntilTaken();
  }

  close(): void {
    this.#stop.abort();
  }

  async #probeUntilTaken(): Promise<void> {
    while (this.#outage !== undefined) {
      this.#failures += 1;
      await pause(backoffMs(this.#failures, PROBE_BACKOFF), this.#stop.signal);
      if (this.#stop.signal.aborted) return;
      this.#set(await this.#options.probe());
    }
  }

  #set(outage: Outage | undefined): void {
    const { log, clock, onOutage } = this.#options;
    const before = this.#outage;
    this.#outage = outage;
    if (outage !== undefined && outage.reason !== before?.reason)
      log.warn({ reason: outage.reason }, 'mails wait for the relay');
    onOutage(outage);
    if (outage !== undefined || before === undefined) return;
    this.#resumedAtMs = clock.monotonicMs();
    log.info('the relay takes mail again');
    this.#onChange();
  }
}
