/** Every hand-over of an account's e-mails to the relay; the mail room writes it. */

/** Without a result, the process died, was frozen or lost the database, and the mail may be out. */
export interface Intent {
  /** Version of the request's claim; unique among the account's hand-overs. */
  readonly claim: number;
  readonly startedAt: Date;
  readonly attempt: number;
  /** In a cluster, this is the pod. */
  readonly host: string;
}

/** At `mail`, `rcpt` or `data` the relay refused that command. */
export type Phase = 'connect' | 'session' | 'mail' | 'rcpt' | 'data' | 'content' | 'answered';

export interface MailEnding {
  readonly endedAt: Date;
  readonly result: 'accepted' | 'refused' | 'unreachable' | 'ambiguous' | 'aborted';
  readonly phase?: Phase;
  /** SMTP reply code, and RFC 3463 status such as `5.1.1`. */
  readonly code?: number;
  readonly enhancedCode?: string;
  /** nodemailer's words, such as `ETIMEDOUT CONN`. */
  readonly cause?: string;
  /** It often names the relay's queue id. */
  readonly answer?: string;
}

export type MailHandOver = Intent & Partial<MailEnding>;

export interface MailLedger {
  readonly begun: number;
  /** Above 1, the applicant may have got the mail twice. */
  readonly possible: number;
  /** By claim; those that cannot have arrived are forgotten first. */
  readonly handOvers: Readonly<Record<string, MailHandOver>>;
}
