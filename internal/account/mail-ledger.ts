/** Hand-overs of an account's e-mails to the relay; the mail room writes them. */

/** Without a result, the process died, froze or lost the database, and the e-mail may be out. */
export interface Intent {
  readonly claim: number;
  readonly startedAt: Date;
  readonly attempt: number;
  readonly host: string;
}

/** At `mail`, `rcpt` and `data`, the relay refused that command. */
export type Phase = 'connect' | 'session' | 'mail' | 'rcpt' | 'data' | 'content' | 'answered';

export interface MailEnding {
  readonly endedAt: Date;
  readonly result: 'accepted' | 'refused' | 'unreachable' | 'ambiguous' | 'aborted';
  readonly phase?: Phase;
  /** The SMTP reply code; `enhancedCode` is that of RFC 3463. */
  readonly code?: number;
  readonly enhancedCode?: string;
  /** nodemailer's words, such as `ETIMEDOUT CONN`. */
  readonly cause?: string;
  /** The relay's words, without the applicant's address: only people see them. */
  readonly answer?: string;
}

export type MailHandOver = Intent & Partial<MailEnding>;

export interface MailLedger {
  readonly begun: number;
  /** Above 1, the applicant may have got the e-mail twice. */
  readonly possible: number;
  /** By claim. */
  readonly handOvers: Readonly<Record<string, MailHandOver>>;
}
