/**
 * Decides when the next e-mail may begin: the relay takes mail (relay-breaker.ts), a place is free
 * (mail-places.ts), and the common pace allows it (mail-pace.ts).
 */
import { pause } from '../platform/deadline.ts';
import { MailPlaces } from './mail-places.ts';
import type { MailPace } from './mail-pace.ts';
import type { HandOver, PauseReason } from './mailer.ts';
import { REST_MS } from './limits.ts';
import { RelayBreaker, type BreakerOptions } from './relay-breaker.ts';

/** Whose fault a hand-over's result is. */
export type Blame = 'relay' | 'mail';

export interface MailPlace {
  /** Waits for the mail's moment; call it once, just before the hand-over. Never rejects. */
  turn(signal: AbortSignal): Promise<void>;
  note(handOver: HandOver): Blame;
  /** Call it once, whatever happened. */
  release(): void;
}

export interface MailGateOptions extends BreakerOptions {
  readonly places: number;
  /** None without MAIL_PER_SECOND. */
  readonly pace?: Pick<MailPace, 'reserve' | 'waitingAtMost'> | undefined;
}

export class MailGate {
  readonly #options: MailGateOptions;
  readonly #places: MailPlaces;
  readonly #breaker: RelayBreaker;
  /** Begun, and still without its moment. */
  #waiting = 0;
  #closed = false;
  /** Called when `choose` may answer otherwise. */
  onChange = (): void => {};

  constructor(options: MailGateOptions) {
    const changed = (): void => this.onChange();
    this.#options = options;
    this.#places = new MailPlaces(options.places, changed);
    this.#breaker = new RelayBreaker(options, changed);
  }

  get paused(): PauseReason | undefined {
    return this.#breaker.outage?.reason;
  }

  /** E-mails that are handed over without a place. */
  get slow(): number {
    return this.#places.slow;
  }

  greet(): Promise<void> {
    return this.#breaker.greet();
  }

  /** The partner whose e-mail may begin now. */
  choose(partnersInTurn: Iterable<string>): string | undefined {
    const { pace } = this.#options;
    if (this.#closed || this.paused !== undefined) return undefined;
    if (pace !== undefined && this.#waiting >= pace.waitingAtMost) return undefined;
    return this.#places.choose(partnersInTurn);
  }

  begin(partnerId: string): MailPlace {
    const { pace, clock } = this.#options;
    const place = this.#places.take(partnerId);
    const beganAtMs = clock.monotonicMs();
    let restMs = 0;
    let waits = true;
    this.#waiting += 1;
    const endWait = (): void => {
      if (waits) this.#waiting -= 1;
      waits = false;
    };
    return {
      turn: async (signal) => {
        if (pace !== undefined) await pause(await pace.reserve(), signal);
        endWait();
        place.start();
        if (pace !== undefined) this.onChange();
      },
      note: (handOver) => {
        const blame = this.#breaker.note(handOver, beganAtMs);
        if (blame === 'rest') restMs = REST_MS;
        return blame === 'mail' ? 'mail' : 'relay';
      },
      release: () => {
        endWait();
        place.release(restMs);
      },
    };
  }

  close(): void {
    this.#closed = true;
    this.#breaker.close();
  }
}
