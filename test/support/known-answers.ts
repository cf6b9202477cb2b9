/** Answers of well-known relays with their class. */
import type { Fault, Refusal } from '../../internal/mail/relay-answers.ts';

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
