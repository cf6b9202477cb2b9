/**
 * What the run itself did, as far as it excuses something: who was killed when, and which mails
 * were tampered with.
 */
import type { MailCatcher, SmtpFault } from '../support/mail-catcher.ts';
import type { ServiceName } from '../../deploy/local/processes.ts';

/** A mail the catcher kept. */
export interface SentMail {
  /** In lower case. */
  readonly to: string;
  /** Milliseconds of Unix time. */
  readonly at: number;
  readonly messageId: string;
}

/** What the run did; only these facts explain a second mail or a late record. */
export interface RunFacts {
  /** Ingest processes that got a SIGKILL: they may have died between a 500 and its withdrawal. */
  readonly killedIngest: ReadonlySet<string>;
  /**
   * When a processor was killed, frozen or thawed: it may have been between a relay's 250 and its
   * own update.
   */
  readonly processorStops: readonly number[];
  /**
   * When all SMTP sessions were ended at once: one of them may have been between content and
   * answer.
   */
  readonly mailStops: readonly number[];
  /**
   * Recipients whose session was cut or left without an answer after the content, and when:
   * ambiguous by design.
   */
  readonly ambiguous: ReadonlyMap<string, readonly number[]>;
  /** Recipients that the relay refused for good, or whose mail bounced. */
  readonly refused: ReadonlySet<string>;
  /** Dead letters that an operator sent again: their mails are as many as asked for. */
  readonly reopened: ReadonlySet<string>;
}

export class Facts implements RunFacts {
  readonly killedIngest = new Set<string>();
  readonly processorStops: number[] = [];
  readonly mailStops: number[] = [];
  readonly ambiguous = new Map<string, number[]>();
  readonly refused = new Set<string>();
  readonly reopened = new Set<string>();
  /** Sentences on what no fault explains: a process that ended by itself, an unclean exit. */
  readonly troubles: string[] = [];
  readonly mails: SentMail[] = [];
  readonly kills = new Map<string, number>();
  /** Withdrawals by result, of ingest processes that have ended. */
  readonly withdrawals = new Map<string, number>();
  readonly #catcher: MailCatcher;

  constructor(catcher: MailCatcher) {
    this.#catcher = catcher;
  }

  trouble(sentence: string): void {
    this.troubles.push(sentence);
  }

  killed(instance: string, name: ServiceName | 'mongodb' | 'redis'): void {
    this.kills.set(name, (this.kills.get(name) ?? 0) + 1);
    if (name === 'ingest') this.killedIngest.add(instance);
    if (name === 'processor') this.processorStopped();
  }

  processorStopped(): void {
    this.processorStops.push(Date.now());
  }

  mailStopped(): void {
    this.mailStops.push(Date.now());
  }

  /** Remembers what a fault does to the mail of `recipient`, and gives the fault back. */
  tampered(recipient: string, fault: SmtpFault): SmtpFault {
    const to = recipient.toLowerCase();
    if ('answer' in fault) {
      if (fault.answer.code >= PERMANENT_FROM) this.refused.add(to);
    } else if (fault.at === 'data') {
      this.ambiguous.set(to, [...(this.ambiguous.get(to) ?? []), Date.now()]);
    }
    return fault;
  }

  /** Takes the mails out of the catcher, whose room is bounded. */
  collectMails(): void {
    for (const { envelopeTo, receivedAt, messageId } of this.#catcher.mails) {
      for (const to of envelopeTo)
        this.mails.push({ to: to.toLowerCase(), at: receivedAt.getTime(), messageId });
    }
    this.#catcher.clear();
    if (this.#catcher.counts.dropped > 0 && !this.troubles.includes(MAILS_DROPPED))
      this.trouble(MAILS_DROPPED);
  }
}

const PERMANENT_FROM = 500;
const MAILS_DROPPED = 'the mail catcher dropped mails for want of room, so mails cannot be counted';
