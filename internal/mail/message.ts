/** The e-mail to the applicant: login instructions in text and HTML. Pure. */
import type { Templates } from './templates.ts';

export interface LoginInstructions {
  readonly accountId: string;
  /** Deliberate further mails so far: each is a mail of its own, where a repeat is the same one. */
  readonly mailVersion?: number;
  readonly businessName: string;
  /** What the applicant names in a question to support. */
  readonly reference: string;
  /** Where to ask; the mail then says so. */
  readonly supportContact?: string;
  /** Where the mail goes, and the user name to log in with. */
  readonly email: string;
  readonly loginUrl: string;
  readonly activationUrl: string;
  readonly activationExpiresAt: Date;
  readonly writtenAt: Date;
}

export interface Message {
  readonly subject: string;
  readonly text: string;
  readonly html: string;
  /** The same for every hand-over of this mail, so that a mail server may drop a repeat. */
  readonly messageId: string;
}

/** A name longer than this is cut in the greeting; the account keeps it whole. */
const GREETING_NAME_MAX = 120;

/** `senderDomain` ends the Message-ID, e.g. `partner.example`. */
export function loginInstructions(
  facts: LoginInstructions,
  senderDomain: string,
  templates: Templates,
): Message {
  const again = facts.mailVersion === undefined ? '' : `.${facts.mailVersion}`;
  const values = {
    businessName: harmless(facts.businessName),
    userName: facts.email,
    activationUrl: facts.activationUrl,
    linkDays: inDays(facts.activationExpiresAt.getTime() - facts.writtenAt.getTime()),
    linkExpires: `${dateAndTime.format(facts.activationExpiresAt)} UTC`,
    loginUrl: facts.loginUrl,
    reference: facts.reference,
    support: supportSentence(facts.supportContact),
  };
  return {
    subject: templates.subject,
    messageId: `<${facts.accountId}.login-instructions${again}@${senderDomain}>`,
    text: templates.text(values),
    html: templates.html(values),
  };
}

/**
 * The account that a Message-ID of `loginInstructions` names, and which of its mails; undefined if
 * it is none of ours.
 */
export function accountOfMessageId(
  messageId: string,
): { readonly accountId: string; readonly mailVersion?: number } | undefined {
  const [, accountId, version] =
    /^<?(acc_[0-9a-z]{26})\.login-instructions(?:\.(\d{1,9}))?@/.exec(messageId) ?? [];
  if (accountId === undefined) return undefined;
  return { accountId, ...(version === undefined ? {} : { mailVersion: Number(version) }) };
}

const dateAndTime = new Intl.DateTimeFormat('en-GB', {
  dateStyle: 'full',
  timeStyle: 'short',
  timeZone: 'UTC',
});

function inDays(milliseconds: number): string {
  const days = Math.round(milliseconds / 86_400_000);
  return `${days} ${days === 1 ? 'day' : 'days'}`;
}

function supportSentence(contact: string | undefined): string {
  return contact === undefined
    ? 'Give it in every question about your account.'
    : `Questions? Contact ${contact} and give this number.`;
}

/**
 * What mail programs turn into a link, or what tells the reader where to go: a scheme, `www.`, an
 * address, a host with a path.
 */
const LINK =
  /:\/\/|\bwww\.|\S@\S|(?:\d{1,3}\.){3}\d|\b(?:mailto|tel|javascript|data):|\p{L}\.\p{L}{2,}[/:?#]/iu;
/** A call such as `URGENT: confirm your account`. */
const INSTRUCTION = /[:!?]\s+\S+\s+\S/u;
/** The dot of a host name: mail programs link `evil.example`, but not `evil example`. */
const HOST_DOT = /(?<=[\p{L}\p{N}-]\p{Cf}*)[.\u3002\uff0e\uff61](?=\p{Cf}*\p{L}{2})/gu;

/**
 * The name in quotation marks, because the mail's reader trusts us and not who chose the name. One
 * that holds a link or an instruction is not shown at all.
 */
function harmless(name: string): string {
  const flat = oneLine(name);
  // As a reader sees it: without invisible characters, and with the usual letters for look-alikes
  // such as `．`.
  const seen = oneLine(name.normalize('NFKC').replaceAll(/\p{Cf}/gu, ''));
  if (seen === '' || LINK.test(seen) || INSTRUCTION.test(seen)) return 'your business';
  return `“${flat.replaceAll(HOST_DOT, ' ').replaceAll(/[“”]/g, '"')}”`;
}

/**
 * Control characters, line and paragraph separators become spaces: a name must not shape the mail
 * around it.
 */
function oneLine(name: string): string {
  const flat = name
    .toWellFormed()
    .replace(/[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]+/gu, ' ')
    .trim();
  return flat.length > GREETING_NAME_MAX
    ? `${flat.slice(0, GREETING_NAME_MAX).toWellFormed()}…`
    : flat;
}
