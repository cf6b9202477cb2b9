/** Tells a relay that refuses our sender from one that refuses a mail: by the answers to distinct accounts. */
import type { Clock } from '../platform/clock.ts';
import type { ProcessorMetrics } from '../telemetry/metrics.ts';
import { BREAKER_ACCOUNTS, BREAKER_LEAST, BREAKER_SHARE, BREAKER_TRIAL_MS } from './limits.ts';

export class SenderBreaker {
  readonly #clock: Clock;
  readonly #refused: Pick<ProcessorMetrics['senderRefused'], 'set'>;
  /** The newest answer to each of the last accounts: whether it blamed us. */
  readonly #answers = new Map<string, boolean>();
  /** When the next trial may begin; undefined while the sender is not refused. */
  #trialAtMs: number | undefined;

  constructor(options: { readonly clock: Clock; readonly refused: Pick<ProcessorMetrics['senderRefused'], 'set'> }) {
    this.#clock = options.clock;
    this.#refused = options.refused;
    this.#refused.set(0);
  }

  /** Whether the relay refuses our sender at present. */
  get open(): boolean {
    return this.#trialAtMs !== undefined;
  }

  /** Whether a hand-over may begin. While the sender is refused, one in a while may: its answer decides. */
  mayBegin(): boolean {
    if (this.#trialAtMs === undefined) return true;
    const now = this.#clock.monotonicMs();
    if (now < this.#trialAtMs) return false;
    this.#trialAtMs = now + BREAKER_TRIAL_MS;
    return true;
  }

  /** Notes an answer of the relay to the mail of an account. */
  note(accountId: string, blamesUs: boolean): void {
    if (this.#trialAtMs !== undefined && !blamesUs) {
      this.#answers.clear();
      this.#trialAtMs = undefined;
      this.#refused.set(0);
    }
    this.#answers.delete(accountId);
    this.#answers.set(accountId, blamesUs);
    const [oldest] = this.#answers.keys();
    if (this.#answers.size > BREAKER_ACCOUNTS && oldest !== undefined) this.#answers.delete(oldest);
    const refused = [...this.#answers.values()].filter(Boolean).length;
    if (this.#trialAtMs !== undefined || refused < BREAKER_LEAST) return;
    if (refused / this.#answers.size < BREAKER_SHARE) return;
    this.#trialAtMs = this.#clock.monotonicMs() + BREAKER_TRIAL_MS;
    this.#refused.set(1);
  }
}
