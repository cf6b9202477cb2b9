/** Decides from a relay's refusal whose fault it is. */

/** The first two concern all mail, the others one mail. */
export const faults = {
  sender: 'the relay refuses our sender or login, before it knows the recipient: all mail waits',
  capacity: 'the relay takes less mail than it is offered, or none now: all mail slows down',
  recipient: "the applicant's address: no mail can be delivered there",
  ours: 'the relay blames us for this mail: an operator corrects it',
  busy: 'the mailbox, or this mail, is taken later',
} as const;
export type Fault = keyof typeof faults;

export interface Refusal {
  readonly phase: 'mail' | 'rcpt' | 'data' | 'content';
  readonly code: number;
  /** RFC 3463 status such as `5.1.1`. */
  readonly enhancedCode: string | undefined;
  /** The text itself may contain an address. */
  readonly fault: Fault;
}

interface KnownAnswer {
  readonly relay: string;
  readonly phase: Refusal['phase'];
  readonly answer: string;
  readonly fault: Fault;
}

const at =
  (relay: string) =>
  (phase: Refusal['phase'], answer: string, fault: Fault): KnownAnswer => ({
    relay,
    phase,
    answer,
    fault,
  });
const ses = at('Amazon SES');
const sendGrid = at('SendGrid');
const mailgun = at('Mailgun');
const exchange = at('Exchange Online');
const gmail = at('Gmail');
const postfix = at('Postfix');
const exim = at('Exim');
const rfc = at('RFC 5321');

export const knownAnswers: readonly KnownAnswer[] = [
  ses('content', '454 Throttling failure: Maximum sending rate exceeded', 'capacity'),
  ses('content', '454 Throttling failure: Daily message quota exceeded', 'capacity'),
  ses('content', '451 Temporary service failure', 'busy'),
  ses('content', '554 Message rejected: Email address is not verified', 'ours'),
  ses('content', '554 Message rejected: Sending paused for this account', 'ours'),
  ses('mail', '530 Authentication required', 'sender'),
  sendGrid('content', '550 The from address does not match a verified Sender Identity', 'ours'),
  sendGrid('content', '403 You are not authorized to send from that email address', 'ours'),
  sendGrid('mail', '451 Authentication failed: Maximum credits exceeded', 'capacity'),
  sendGrid('rcpt', '452 Too many recipients received this hour (throttled)', 'capacity'),
  sendGrid('rcpt', '550 Unauthenticated senders not allowed', 'ours'),
  mailgun('rcpt', '550 5.7.1 Relaying denied', 'ours'),
  mailgun('rcpt', '530 5.7.1 Authentication required', 'ours'),
  mailgun('rcpt', '421 4.7.0 Too many messages, try again later', 'capacity'),
  mailgun('data', '421 Domain is not allowed to send', 'ours'),
  mailgun('content', '421 Domain is not allowed to send', 'ours'),
  mailgun('content', '554 Sandbox subdomains are for test purposes only', 'ours'),
  exchange('rcpt', '550 5.1.10 RESOLVER.ADR.RecipientNotFound; Recipient not found', 'recipient'),
  exchange('rcpt', '550 5.4.1 Recipient address rejected: Access denied', 'recipient'),
  exchange('content', '552 5.2.2 Mailbox full', 'recipient'),
  exchange('rcpt', '451 4.7.500 Server busy. Please try again later', 'capacity'),
  exchange('content', '432 4.3.2 STOREDRV.ClientSubmit; sender thread limit exceeded', 'capacity'),
  exchange('mail', '530 5.7.57 Client was not authenticated to send anonymous mail', 'sender'),
  exchange('rcpt', '550 5.1.8 Access denied, bad outbound sender', 'ours'),
  exchange('content', '550 5.7.60 Client does not have permissions to send as this sender', 'ours'),
  exchange('content', '554 5.2.252 SendAsDenied; not allowed to send as the sender', 'ours'),
  gmail('rcpt', '550 5.1.1 The email account that you tried to reach does not exist', 'recipient'),
  gmail('rcpt', '550 5.2.1 The email account that you tried to reach is inactive', 'recipient'),
  gmail('rcpt', '552 5.2.2 The email account that you tried to reach is over quota', 'recipient'),
  gmail('rcpt', "553 5.1.2 We weren't able to find the recipient domain", 'recipient'),
  gmail('rcpt', '452 4.2.2 The email account that you tried to reach is over quota', 'busy'),
  gmail(
    'rcpt',
    '450 4.2.1 The user you are trying to contact is receiving mail too quickly',
    'busy',
  ),
  gmail('rcpt', '421 4.7.0 Try again later, closing connection', 'capacity'),
  gmail('content', '550 5.4.5 Daily user sending limit exceeded', 'capacity'),
  gmail('content', '550 5.7.26 This mail is unauthenticated', 'ours'),
  gmail('rcpt', '530 5.7.0 Must issue a STARTTLS command first', 'ours'),
  postfix(
    'rcpt',
    '550 5.1.1 Recipient address rejected: User unknown in local recipient table',
    'recipient',
  ),
  postfix('rcpt', '450 4.1.2 Recipient address rejected: Domain not found', 'busy'),
  postfix('rcpt', '450 4.2.0 Recipient address rejected: Greylisted', 'busy'),
  postfix('rcpt', '554 5.7.1 Relay access denied', 'ours'),
  postfix('rcpt', '454 4.7.1 Relay access denied', 'ours'),
  postfix('rcpt', '550 5.1.8 Sender address rejected: Domain not found', 'ours'),
  postfix('rcpt', '450 4.1.8 Sender address rejected: Domain not found', 'ours'),
  postfix('mail', '501 5.1.7 Bad sender address syntax', 'sender'),
  postfix('rcpt', '553 5.7.1 Sender address rejected: not owned by user', 'ours'),
  postfix('mail', '452 4.3.1 Insufficient system storage', 'capacity'),
  exim('rcpt', '550 Sender verify failed', 'ours'),
  exim('rcpt', '550 Unrouteable address', 'recipient'),
  exim('rcpt', '550 Unknown user', 'recipient'),
  exim('rcpt', '550 relay not permitted', 'ours'),
  exim('rcpt', '550-Unrouteable address\n550 Sender verify failed', 'ours'),
  exim('rcpt', '451 Temporary local problem - please try later', 'busy'),
  rfc('rcpt', '550 Requested action not taken: mailbox unavailable', 'recipient'),
  rfc('rcpt', '551 User not local; please try another path', 'recipient'),
  rfc('rcpt', '553 Requested action not taken: mailbox name not allowed', 'recipient'),
  rfc('rcpt', '556 Domain does not accept mail', 'recipient'),
  rfc('rcpt', '421 Service not available, closing transmission channel', 'capacity'),
  rfc('content', '452 Requested action not taken: insufficient system storage', 'busy'),
  rfc('content', '554 Transaction failed', 'ours'),
];

const ABOUT_US =
  /\bsenders?\b|\bfrom address\b|relay(?:ing)? (?:access )?(?:denied|not )|to relay|authenticat|authoriz|(?:allowed|permitted) to send|policy|spam|block|black ?list|banned|reputation|\b(?:spf|dkim|dmarc)\b/i;
const NO_SUCH_MAILBOX =
  /no such (?:user|mailbox|recipient|account)|unknown (?:user|recipient|mailbox)|(?:user|mailbox|recipient|account|address)\b.{0,40}(?:unknown|not found|not exist|doesn't exist|unavailable|disabled|inactive)|recipient address rejected|unrouteable address|invalid (?:recipient|mailbox)|mailbox.{0,20}full|over quota/i;
const THROTTLED =
  /throttl|too many (?:messages|e-?mails|recipients|connections|requests)|(?:limit|quota|rate|credits) exceeded|server busy|too busy/i;
const GREYLISTED = /gr[ae]y-?list/i;
/** RFC 5321 §4.2.3, RFC 7504. */
const NO_MAILBOX_CODES = new Set([550, 551, 553, 556]);

export function refusalOf(phase: Refusal['phase'], code: number, answer = ''): Refusal {
  const enhancedCode = CODES.exec(answer)?.[2];
  // A domain such as spam.example must not match.
  const words = answer.replace(/\S+@\S+/g, '…').replaceAll(/\s+/g, ' ');
  return { phase, code, enhancedCode, fault: faultOf(phase, code, enhancedCode, words) };
}

/**
 * A wrong `recipient` loses an applicant, so the answer must say it. At MAIL FROM the relay does
 * not know the recipient.
 */
function faultOf(phase: Refusal['phase'], code: number, status = '', words: string): Fault {
  const mailbox = /^[45]\.[12]\./.test(status);
  const aboutUs = ABOUT_US.test(words);
  const throttled =
    code === 421 || /^4\.[37]\./.test(status) || (THROTTLED.test(words) && !mailbox);
  if (phase === 'mail') return throttled || code < 500 ? 'capacity' : 'sender';
  if (throttled && !GREYLISTED.test(words) && !(aboutUs && !THROTTLED.test(words)))
    return 'capacity';
  if (code < 500) return aboutUs ? 'ours' : 'busy';
  if (aboutUs) return 'ours';
  const byCode = phase === 'rcpt' && status === '' && NO_MAILBOX_CODES.has(code);
  const byStatus = /^5\.[12]\.|^5\.4\.4$/.test(status) && !/^5\.1\.[78]$/.test(status);
  return byCode || byStatus || NO_SUCH_MAILBOX.test(words) ? 'recipient' : 'ours';
}

export const CODES = /^(\d{3})(?:[ -](\d\.\d{1,3}\.\d{1,3})\b)?/;
