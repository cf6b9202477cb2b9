/** Every hand-over of an account's e-mails to the relay; the mail room writes it. */

/** Without a result, the process died, froze or lost the database, and the e-mail may be out. */
export interface Intent {
  /** Version of the request's claim; unique in the ledger. */
  readonly claim: number;
  readonly startedAt: Date;
  readonly attempt: number;
  /** The pod, in a cluster. */
  readonly host: string;
}

/** The relay refused the command `mail`, `rcpt` or `data`. */
export type Phase = 'connect' | 'session' | 'mail' | 'rcpt' | 'data' | 'content' | 'answered';

export interface MailEnding {
  readonly endedAt: Date;
  readonly result: 'accepted' | 'refused' | 'unreachable' | 'ambiguous' | 'aborted';
  readonly phase?: Phase;
  /** The SMTP reply code, and an RFC 3463 status such as `5.1.1`. */
  readonly code?: number;
  readonly enhancedCode?: string;
  /** nodemailer's words, such as `ETIMEDOUT CONN`. */
  readonly cause?: string;
  /** Often names the relay's queue id. */
  readonly answer?: string;
}

export type MailHandOver = Intent & Partial<MailEnding>;

export interface MailLedger {
  readonly begun: number;
  /** Above 1, the applicant may have got the e-mail twice. */
  readonly possible: number;
  /** By claim; those that cannot have arrived are removed first. */
  readonly handOvers: Readonly<Record<string, MailHandOver>>;
}
