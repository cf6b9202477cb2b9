/** Catches the mails of tests, and misbehaves as they ask for. */
import { Mailbox, type CaughtMail } from './mail-catcher/mailbox.ts';
import {
  SmtpListener,
  type FaultChoice,
  type SmtpCounts,
  type SmtpFault,
} from './mail-catcher/smtp.ts';

export type { CaughtMail, Envelope } from './mail-catcher/mailbox.ts';
export type {
  FaultChoice,
  SmtpAnswer,
  SmtpCounts,
  SmtpFault,
  SmtpPhase,
} from './mail-catcher/smtp.ts';

/** A running mail catcher. */
export interface MailCatcher {
  /** `smtp://127.0.0.1:PORT` */
  readonly smtpUrl: string;
  /** Oldest first; the live list, so take a copy to keep one. */
  readonly mails: readonly CaughtMail[];
  /** Since the start; `dropped` counts mails forgotten for want of room. */
  readonly counts: Readonly<SmtpCounts & { dropped: number }>;
  /** By envelope recipient, whatever the To header says; case does not count. */
  mailsTo(address: string): CaughtMail[];
  /**
   * The first kept or coming mail that fits; the error after `timeoutMs` lists what came instead.
   */
  waitForMail(predicate: (mail: CaughtMail) => boolean, timeoutMs: number): Promise<CaughtMail>;
  /**
   * Holds for all sessions until it is set again; `undefined` is good behaviour. Hung sessions stay
   * hung.
   */
  setFault(fault: SmtpFault | FaultChoice | undefined): void;
  /** Forgets the mails; `counts` go on. */
  clear(): void;
  /** Connections are refused and the open ones are destroyed. */
  stopListening(): Promise<void>;
  /** On the same port; rejects when somebody took it meanwhile. */
  listenAgain(): Promise<void>;
  /** Ends everything, also pending waits. */
  close(): Promise<void>;
}

export interface MailCatcherOptions {
  /** Mails kept, newest first; 1,000 when left out. */
  keep?: number;
}

const LOOPBACK = '127.0.0.1';

/** Listens on a free port. */
export async function startMailCatcher({ keep }: MailCatcherOptions = {}): Promise<MailCatcher> {
  const mailbox = new Mailbox(keep);
  const listener = new SmtpListener(mailbox, LOOPBACK, 0);
  await listener.listen();
  return {
    smtpUrl: `smtp://${LOOPBACK}:${listener.port}`,
    mails: mailbox.mails,
    get counts() {
      return { ...listener.counts, dropped: mailbox.dropped };
    },
    mailsTo: (address) => mailbox.to(address),
    waitForMail: (predicate, timeoutMs) => mailbox.waitFor(predicate, timeoutMs),
    setFault: (fault) => listener.setFault(fault),
    clear: () => mailbox.clear(),
    stopListening: () => listener.stop(),
    listenAgain: () => listener.listen(),
    close: async () => {
      mailbox.close();
      await listener.stop();
    },
  };
}
