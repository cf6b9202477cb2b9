/** Records what the run did that may allow findings: kills, freezes and tampered mails. */
import type { MailCatcher, SmtpFault } from '../support/mail-catcher.ts';
import type { ServiceName } from '../../deploy/local/processes.ts';

export interface SentMail {
  readonly to: string;
  readonly at: number;
  readonly messageId: string;
}

/** The facts that can explain a second mail or a late record. */
export type RunFacts = Pick<
  Facts,
  | 'killedIngest'
  | 'processorStops'
  | 'databaseBack'
  | 'mailStops'
  | 'ambiguous'
  | 'refused'
  | 'reopened'
>;

export class Facts {
  /** When ingest processes were killed, perhaps between a 500 and its withdrawal. */
  readonly killedIngest = new Map<string, number>();
  /** Times at which a processor was killed, frozen or thawed, perhaps after a relay's 250. */
  readonly processorStops: number[] = [];
  /** Times at which the database was there again after a kill or a power cut. */
  readonly databaseBack: number[] = [];
  /** Times at which all SMTP sessions were ended, perhaps after the content. */
  readonly mailStops: number[] = [];
  /** Times at which a recipient's session was cut or hung after the content. */
  readonly ambiguous = new Map<string, number[]>();
  readonly refused = new Set<string>();
  /** Requests that an operator retried, whose mails are then expected. */
  readonly reopened = new Set<string>();
  /** Sentences about unexpected events, such as an unclean exit. */
  readonly troubles: string[] = [];
  readonly mails: SentMail[] = [];
  readonly kills = new Map<string, number>();
  readonly #catcher: MailCatcher;

  constructor(catcher: MailCatcher) {
    this.#catcher = catcher;
  }

  trouble(sentence: string): void {
    this.troubles.push(sentence);
  }

  killed(instance: string, name: ServiceName | 'mongodb' | 'redis'): void {
    this.kills.set(name, (this.kills.get(name) ?? 0) + 1);
    if (name === 'ingest') this.killedIngest.set(instance, Date.now());
    if (name === 'processor') this.processorStopped();
  }

  processorStopped(): void {
    this.processorStops.push(Date.now());
  }

  mailStopped(): void {
    this.mailStops.push(Date.now());
  }

  /** Remembers what the fault does to the mail of `recipient`, and returns it. */
  tampered(recipient: string, fault: SmtpFault): SmtpFault {
    const to = recipient.toLowerCase();
    if ('answer' in fault) {
      if (fault.answer.code >= PERMANENT_FROM) this.refused.add(to);
    } else if (fault.at === 'data') {
      this.ambiguous.set(to, [...(this.ambiguous.get(to) ?? []), Date.now()]);
    }
    return fault;
  }

  collectMails(): void {
    for (const { envelopeTo, receivedAt, messageId } of this.#catcher.mails) {
      for (const to of envelopeTo)
        this.mails.push({ to: to.toLowerCase(), at: receivedAt.getTime(), messageId });
    }
    this.#catcher.clear();
  }
}

const PERMANENT_FROM = 500;
