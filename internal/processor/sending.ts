/** When a hand-over may begin in this process: the relay's pace, the domain's share, and whether our sender is refused. */
import { DomainSlots } from '../mail/domain-slots.ts';
import type { HandOver } from '../mail/mailer.ts';
import { asksToSlowDown, faultOf } from '../mail/relay-answers.ts';
import { SendingPace } from '../mail/sending-pace.ts';
import type { Clock } from '../platform/clock.ts';
import { pause } from '../platform/deadline.ts';
import type { ProcessorMetrics } from '../telemetry/metrics.ts';
import { AttemptFailure } from './attempt.ts';
import { SenderBreaker } from './sender-breaker.ts';

/** A mail's turn that has come; it is given back once, used or not. */
export interface Turn {
  /** Runs `work`, which ends with a hand-over. */
  use(accountId: string, work: () => Promise<HandOver>): Promise<HandOver>;
  giveBack(): void;
}

const domainOf = (email: string): string => email.slice(email.lastIndexOf('@') + 1).toLowerCase();

export class Sending {
  readonly #clock: Clock;
  readonly #pace: SendingPace;
  readonly #domains: DomainSlots;
  readonly #breaker: SenderBreaker;

  constructor(options: {
    /** Hand-overs at the same time. */
    readonly slots: number;
    /** Hand-overs a second; 0: as many as the relay takes. */
    readonly perSecond: number;
    readonly clock: Clock;
    readonly refused: Pick<ProcessorMetrics['senderRefused'], 'set'>;
  }) {
    this.#clock = options.clock;
    this.#pace = new SendingPace(options.perSecond);
    this.#domains = new DomainSlots(options.slots, options.clock);
    this.#breaker = new SenderBreaker(options);
  }

  /** Runs `work`, which ends with a hand-over, when its turn has come. Throws `AttemptFailure` if that is not soon. */
  async inTurn(
    mail: { readonly accountId: string; readonly email: string; readonly signal: AbortSignal },
    work: () => Promise<HandOver>,
  ): Promise<HandOver> {
    const domain = domainOf(mail.email);
    if (!(await this.#domains.take(domain))) {
      throw new AttemptFailure('busy', "the applicant's mail server is slow, and other mails to it come first");
    }
    try {
      if (!this.#breaker.mayBegin()) throw new AttemptFailure('ours', 'the mail server refuses our sender at present');
      const waitMs = this.#pace.takeTurn(this.#clock.monotonicMs());
      if (waitMs > 0) await pause(waitMs, mail.signal);
      return await this.#noted(mail.accountId, work);
    } finally {
      this.#domains.release(domain);
    }
  }

  /** The turn of a mail to `email` that may go out at once; undefined where it would have to wait. */
  turnNow(email: string): Turn | undefined {
    const domain = domainOf(email);
    const now = this.#clock.monotonicMs();
    if (this.#breaker.open || !this.#pace.isFree(now) || !this.#domains.takeNow(domain)) return undefined;
    this.#pace.takeTurn(now);
    return {
      use: (accountId, work) => this.#noted(accountId, work),
      giveBack: () => this.#domains.release(domain),
    };
  }

  async #noted(accountId: string, work: () => Promise<HandOver>): Promise<HandOver> {
    const handOver = await work();
    this.#note(accountId, handOver);
    return handOver;
  }

  #note(accountId: string, handOver: HandOver): void {
    const now = this.#clock.monotonicMs();
    if (handOver.result === 'accepted') {
      this.#pace.note('taken', now);
      this.#breaker.note(accountId, false);
    }
    if (handOver.result === 'unreachable' && handOver.busy === true) this.#pace.note('throttled', now);
    if (handOver.result !== 'refused') return;
    const fault = faultOf(handOver);
    this.#pace.note(asksToSlowDown(handOver) ? 'throttled' : 'taken', now);
    if (fault !== 'busy') this.#breaker.note(accountId, fault === 'ours');
  }
}
