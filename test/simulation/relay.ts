/** A model of the mail server, which remembers every mail. */
import type { Mailer } from '../../internal/mail/mailer.ts';
import {
  refusalOf,
  type HandOver,
  type Outage,
  type Refusal,
} from '../../internal/mail/relay-answers.ts';
import type { Scheduler, SimProcess } from './scheduler.ts';
import type { World } from './world.ts';

/** The behaviour of an applicant's mail server. */
export type Temper = 'takes' | 'no_such_mailbox' | 'busy' | 'always_busy' | 'slow' | 'blocks_us';

export interface SentMail {
  readonly accountId: string;
  readonly to: string;
  readonly at: number;
  readonly startedAt: number;
  readonly process: SimProcess;
  /** The result that the worker heard. */
  told: HandOver['result'] | undefined;
}

/** The account in the activation link of a mail. */
function accountIn(text: string): string {
  return /[?&]account=(acc_\w+)/.exec(text)?.[1] ?? 'nobody';
}

const AWAY: Outage = { reason: 'unreachable', error: undefined };
const REFUSED: Outage = { reason: 'refused', error: undefined };

function refused(phase: Refusal['phase'], answer: string): HandOver & { result: 'refused' } {
  return { result: 'refused', ...refusalOf(phase, Number(answer.slice(0, 3)), answer) };
}

/** nodemailer's time-out before the content (mailer.ts). */
const BEFORE_CONTENT_MS = 60_000;
const LONGEST_ANSWER_MS = 590_000;

export class SimRelay {
  readonly mails: SentMail[] = [];
  readonly #scheduler: Scheduler;
  readonly #weather: World['smtp'];
  readonly #temperOf: (email: string) => Temper;
  readonly #busyLeft = new Map<string, number>();

  constructor(scheduler: Scheduler, weather: World['smtp'], temperOf: (email: string) => Temper) {
    this.#scheduler = scheduler;
    this.#weather = weather;
    this.#temperOf = temperOf;
  }

  mailer(): Mailer {
    return {
      handOver: (message, recipient, signal, mayGoOn = () => true) =>
        this.#handOver(accountIn(message.text), recipient, signal, mayGoOn),
      probe: async () => {
        await this.#scheduler.pause(this.#scheduler.random.between(1, 50));
        if (this.#weather.away) return AWAY;
        return this.#weather.refuses ? REFUSED : undefined;
      },
      close: () => {},
    };
  }

  async #handOver(
    accountId: string,
    to: string,
    signal: AbortSignal,
    mayGoOn: () => boolean,
  ): Promise<HandOver> {
    const { random } = this.#scheduler;
    const process = this.#scheduler.process!;
    const startedAt = this.#scheduler.now;
    await this.#scheduler.pause(random.between(1, 100));
    if (this.#weather.away) {
      await this.#scheduler.pause(random.between(0, 10_000));
      return { result: 'unreachable', connected: false, cause: 'ECONNREFUSED', outage: AWAY };
    }
    const cut = random.chance(this.#weather.shaky);
    if (cut && random.chance(0.5))
      return { result: 'unreachable', connected: true, cause: 'ECONNECTION' };
    if (this.#weather.refuses)
      return { ...refused('mail', '550 5.7.1 Sender refused'), outage: REFUSED };
    if (this.#weather.turnsAway) return refused('rcpt', '421 4.7.0 Too many messages');
    const refusal = this.#refusal(to);
    if (refusal !== undefined) return refusal;
    await this.#scheduler.pause(
      random.chance(0.1) ? random.between(100, BEFORE_CONTENT_MS / 2) : random.between(1, 50),
    );

    // The last moment to give up the hand-over.
    const lapsed = !mayGoOn();
    if (signal.aborted || lapsed || this.#scheduler.now - startedAt > BEFORE_CONTENT_MS) {
      return { result: 'aborted', cause: 'claim lost or closing' };
    }
    const taken = !cut || random.chance(0.5);
    const mail: SentMail = {
      accountId,
      to,
      at: this.#scheduler.now,
      startedAt,
      process,
      told: undefined,
    };
    if (taken) this.mails.push(mail);
    const slow = this.#temperOf(to) === 'slow';
    const answersIn = slow ? random.between(10_000, LONGEST_ANSWER_MS) : random.between(1, 200);
    await this.#scheduler.pause(
      Math.max(answersIn, this.#weather.hangsUntil - this.#scheduler.now),
    );
    mail.told = cut ? 'ambiguous' : 'accepted';
    return cut
      ? { result: 'ambiguous', cause: 'ECONNECTION' }
      : { result: 'accepted', answer: '250 ok' };
  }

  #refusal(to: string): HandOver | undefined {
    switch (this.#temperOf(to)) {
      case 'takes':
      case 'slow':
        return undefined;
      case 'no_such_mailbox':
        return refused('rcpt', '550 5.1.1 No such user');
      case 'blocks_us':
        return refused('content', '550 5.7.1 Refused by policy');
      case 'always_busy':
        return refused('rcpt', '450 4.2.0 Greylisted');
      case 'busy': {
        const left = this.#busyLeft.get(to) ?? 2;
        this.#busyLeft.set(to, left - 1);
        return left > 0 ? refused('rcpt', '450 Try again') : undefined;
      }
    }
  }
}
