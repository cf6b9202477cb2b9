/**
 * What an account holds of its e-mails: every hand-over to the mail server. The mail room writes
 * it.
 */

/**
 * What is written before a hand-over. One that stays without a result is the crash window: the
 * process died, was frozen or lost the database in between, and the mail may be out.
 */
export interface Intent {
  /** Version of the request's claim that mails; no two hand-overs of an account share one. */
  readonly claim: number;
  readonly startedAt: Date;
  /** Counts this request's hand-overs from 1, as far as they were attempts. */
  readonly attempt: number;
  /** The processor's host name: in a cluster, its pod. */
  readonly host: string;
}

/**
 * How far a hand-over came: to a connection, a session ready for mail, a command answered 4xx or
 * 5xx, the content, its answer.
 */
export type Phase = 'connect' | 'session' | 'mail' | 'rcpt' | 'data' | 'content' | 'answered';

/**
 * What is added once the hand-over has ended. Holds no address; the account that it is part of
 * does.
 */
export interface MailEnding {
  readonly endedAt: Date;
  readonly result: 'accepted' | 'refused' | 'unreachable' | 'ambiguous' | 'aborted';
  readonly phase?: Phase;
  /** SMTP reply code, and RFC 3463 status such as `5.1.1`. */
  readonly code?: number;
  readonly enhancedCode?: string;
  /** nodemailer's words for what went wrong without an answer, such as `ETIMEDOUT CONN`. */
  readonly cause?: string;
  /** The relay's sentence on a mail it took, which often names its queue id. */
  readonly answer?: string;
}

export type MailHandOver = Intent & Partial<MailEnding>;

/** `accounts.mail`. */
export interface MailLedger {
  /** Hand-overs ever begun. */
  readonly begun: number;
  /**
   * Of these, those that may have reached the applicant. Above 1, the applicant may have got the
   * mail twice.
   */
  readonly possible: number;
  /** By claim; the newest ones; of older ones first those that may have reached the applicant. */
  readonly handOvers: Readonly<Record<string, MailHandOver>>;
}
