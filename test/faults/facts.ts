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
export type RunFacts = Pick<
  Facts,
  'killedIngest' | 'processorStops' | 'mailStops' | 'ambiguous' | 'refused' | 'reopened'
>;

export class Facts {
  /** Ingest processes that got a SIGKILL: they may have died between a 500 and its withdrawal. */
  readonly killedIngest = new Set<string>();
  /**
   * When a processor was killed, frozen or thawed: it may have been between a relay's 250 and its
   * own update.
   */
  readonly processorStops: number[] = [];
  /** When all SMTP sessions were ended at once: one may have been between content and answer. */
  readonly mailStops: number[] = [];
  /** Recipients whose session was cut, or left without an answer, after the content; and when. */
  readonly ambiguous = new Map<string, number[]>();
  /** Recipients that the relay refused for good, or whose mail bounced. */
  readonly refused = new Set<string>();
  /** Dead letters that an operator sent again: their mails are as many as asked for. */
  readonly reopened = new Set<string>();
  /** Sentences on what no fault explains: a process that ended by itself, an unclean exit. */
  readonly troubles: string[] = [];
  readonly mails: SentMail[] = [];
  readonly kills = new Map<string, number>();
  readonly #catcher: MailCatcher;

  constructor(catcher: MailCatcher) {
    this.#catcher = catcher;
  }

  /** For a run that is audited in parts. */
  forgetMails(): void {
    this.collectMails();
    this.mails.length = 0;
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

  /** Takes the mails out of the catcher. */
  collectMails(): void {
    for (const { envelopeTo, receivedAt, messageId } of this.#catcher.mails) {
      for (const to of envelopeTo)
        this.mails.push({ to: to.toLowerCase(), at: receivedAt.getTime(), messageId });
    }
    this.#catcher.clear();
  }
}

const PERMANENT_FROM = 500;
