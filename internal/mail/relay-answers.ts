/** What relays answer when they do not take a mail, and whose fault that is, by their public documents. Pure. */

/** Whose fault an answer is, in words for people. */
export const faults = {
  recipient: "the applicant's address: no mail can be delivered there",
  ours: 'our sender, login, quota or policy: an operator corrects it',
  busy: 'nobody: the relay or the mailbox takes mail later',
} as const;
export type Fault = keyof typeof faults;

export interface Refusal {
  /** Where the refusal came: at a command, or after the content. */
  readonly phase: 'mail' | 'rcpt' | 'data' | 'content';
  readonly code: number;
  /** RFC 3463 status such as `5.1.1`, where the relay gave one. */
  readonly enhancedCode: string | undefined;
  /** The fault that the words of the answer tell, where the codes do not. The words may hold an address and stay out. */
  readonly inWords?: Fault | undefined;
}

interface KnownAnswer {
  readonly relay: string;
  readonly phase: Refusal['phase'];
  /** As documented: code, status where there is one, and text. */
  readonly answer: string;
  readonly fault: Fault;
  /** The words that tell the fault, where the codes alone do not. */
  readonly says?: RegExp;
}

const at =
  (relay: string) =>
  (phase: Refusal['phase'], answer: string, fault: Fault, says?: RegExp): KnownAnswer => ({
    relay,
    phase,
    answer,
    fault,
    ...(says === undefined ? {} : { says }),
  });
const [ses, sendGrid, mailgun] = [at('Amazon SES'), at('SendGrid'), at('Mailgun')];
const [exchange, gmail, postfix, exim] = [at('Exchange Online'), at('Gmail'), at('Postfix'), at('Exim')];

/**
 * A test holds each row against `faultOf`; docs/retries.md prints it. Postmark has no row: its documents give answers of its
 * HTTP API alone, and report what it refuses by SMTP as the bounce type SMTPApiError (docs/login.md).
 */
export const knownAnswers: readonly KnownAnswer[] = [
  ses('content', '454 Throttling failure: Maximum sending rate exceeded', 'busy'),
  ses('content', '454 Throttling failure: Daily message quota exceeded', 'busy'),
  ses('content', '451 Temporary service failure', 'busy'),
  ses('content', '554 Message rejected: Email address is not verified', 'ours'),
  ses('content', '554 Message rejected: Sending paused for this account', 'ours'),
  ses('mail', '530 Authentication required', 'ours'),
  sendGrid('content', '550 The from address does not match a verified Sender Identity', 'ours'),
  sendGrid('content', '403 You are not authorized to send from that email address', 'ours', /not authorized to send/i),
  sendGrid('mail', '451 Authentication failed: Maximum credits exceeded', 'busy'),
  sendGrid('rcpt', '452 Too many recipients received this hour (throttled)', 'busy'),
  sendGrid('rcpt', '550 Unauthenticated senders not allowed', 'ours'),
  mailgun('rcpt', '550 5.7.1 Relaying denied', 'ours'),
  mailgun('rcpt', '530 5.7.1 Authentication required', 'ours'),
  mailgun('rcpt', '421 4.7.0 Too many messages, try again later', 'busy'),
  mailgun('data', '421 Domain is not allowed to send', 'ours', /is not allowed to send/i),
  mailgun('content', '421 Domain is not allowed to send', 'ours', /is not allowed to send/i),
  mailgun('content', '554 Sandbox subdomains are for test purposes only', 'ours'),
  exchange('rcpt', '550 5.1.10 RESOLVER.ADR.RecipientNotFound; Recipient not found', 'recipient'),
  exchange('rcpt', '550 5.4.1 Recipient address rejected: Access denied', 'recipient', /recipient address rejected/i),
  exchange('content', '552 5.2.2 Mailbox full', 'recipient'),
  exchange('rcpt', '451 4.7.500 Server busy. Please try again later', 'busy'),
  exchange('content', '432 4.3.2 STOREDRV.ClientSubmit; sender thread limit exceeded', 'busy'),
  exchange('mail', '530 5.7.57 Client was not authenticated to send anonymous mail', 'ours'),
  exchange('rcpt', '550 5.1.8 Access denied, bad outbound sender', 'ours'),
  exchange('content', '550 5.7.60 Client does not have permissions to send as this sender', 'ours'),
  exchange('content', '554 5.2.252 SendAsDenied; not allowed to send as the sender', 'ours'),
  gmail('rcpt', '550 5.1.1 The email account that you tried to reach does not exist', 'recipient'),
  gmail('rcpt', '550 5.2.1 The email account that you tried to reach is inactive', 'recipient'),
  gmail('rcpt', '552 5.2.2 The email account that you tried to reach is over quota', 'recipient'),
  gmail('rcpt', "553 5.1.2 We weren't able to find the recipient domain", 'recipient'),
  gmail('rcpt', '452 4.2.2 The email account that you tried to reach is over quota', 'busy'),
  gmail('rcpt', '450 4.2.1 The user you are trying to contact is receiving mail too quickly', 'busy'),
  gmail('rcpt', '421 4.7.0 Try again later, closing connection', 'busy'),
  gmail('content', '550 5.4.5 Daily user sending limit exceeded', 'ours'),
  gmail('content', '550 5.7.26 This mail is unauthenticated', 'ours'),
  gmail('rcpt', '530 5.7.0 Must issue a STARTTLS command first', 'ours'),
  postfix('rcpt', '550 5.1.1 Recipient address rejected: User unknown in local recipient table', 'recipient'),
  postfix('rcpt', '450 4.1.2 Recipient address rejected: Domain not found', 'busy'),
  postfix('rcpt', '450 4.2.0 Recipient address rejected: Greylisted', 'busy'),
  postfix('rcpt', '554 5.7.1 Relay access denied', 'ours'),
  postfix('rcpt', '454 4.7.1 Relay access denied', 'ours', /relay access denied/i),
  postfix('rcpt', '550 5.1.8 Sender address rejected: Domain not found', 'ours'),
  postfix('rcpt', '450 4.1.8 Sender address rejected: Domain not found', 'ours', /sender address rejected/i),
  postfix('mail', '501 5.1.7 Bad sender address syntax', 'ours'),
  postfix('rcpt', '553 5.7.1 Sender address rejected: not owned by user', 'ours'),
  postfix('mail', '452 4.3.1 Insufficient system storage', 'busy'),
  // Several lines, the one above the last often "Unrouteable address", of the sender: so this row stands first.
  exim('rcpt', '550 Sender verify failed', 'ours', /sender verify failed/i),
  exim('rcpt', '550 Unrouteable address', 'recipient', /unrouteable address/i),
  exim('rcpt', '550 Unknown user', 'recipient', /unknown user|user unknown|no such user/i),
  exim('rcpt', '550 relay not permitted', 'ours'),
  exim('rcpt', '451 Temporary local problem - please try later', 'busy'),
];

const PERMANENT_FROM = 500;
/** Status codes (RFC 3463) about the address or the mailbox of the recipient, and Exchange's for "not found". */
const RECIPIENT = new Set(['5.1.1', '5.1.2', '5.1.3', '5.1.4', '5.1.6', '5.1.10', '5.2.1', '5.2.2']);
const worded = knownAnswers.filter(({ says }) => says !== undefined);

/**
 * Whose fault a refusal is. A bounce is the recipient's only where the answer says so, because a wrong guess loses an
 * applicant for good: all else is ours. At MAIL FROM the recipient has not been named yet.
 */
export function faultOf({ phase, code, enhancedCode, inWords }: Refusal): Fault {
  if (inWords !== undefined) return inWords;
  if (code < PERMANENT_FROM) return 'busy';
  return phase !== 'mail' && RECIPIENT.has(enhancedCode ?? '') ? 'recipient' : 'ours';
}

/** A relay's answer as a refusal at `phase`. */
export function refusalOf(phase: Refusal['phase'], code: number, answer = ''): Refusal {
  const enhancedCode = CODES.exec(answer)?.[2];
  const known = worded.find((row) => {
    const [, knownCode, status] = CODES.exec(row.answer) ?? [];
    return row.phase === phase && Number(knownCode) === code && status === enhancedCode && row.says?.test(answer);
  });
  return { phase, code, enhancedCode, ...(known === undefined ? {} : { inWords: known.fault }) };
}

/** Whether the relay asks all mail to slow down. A status of the recipient's address or mailbox asks for one mail only. */
export function asksToSlowDown(refusal: Refusal): boolean {
  return faultOf(refusal) === 'busy' && !/^4\.[12]\./.test(refusal.enhancedCode ?? '');
}

/** Reply code and, where there is one, status at the start of an answer. */
export const CODES = /^(\d{3})(?:[ -](\d\.\d{1,3}\.\d{1,3})\b)?/;
