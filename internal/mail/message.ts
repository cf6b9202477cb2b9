/** The e-mail to the applicant: login instructions in text and HTML. Pure. */
import type { Templates } from './templates.ts';

export interface LoginInstructions {
  readonly accountId: string;
  /** Deliberate further mails so far: each is a mail of its own, where a repeat is the same one. */
  readonly mailVersion?: number;
  readonly businessName: string;
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
export function loginInstructions(facts: LoginInstructions, senderDomain: string, templates: Templates): Message {
  const again = facts.mailVersion === undefined ? '' : `.${facts.mailVersion}`;
  const values = {
    businessName: oneLine(facts.businessName),
    userName: facts.email,
    activationUrl: facts.activationUrl,
    linkDays: inDays(facts.activationExpiresAt.getTime() - facts.writtenAt.getTime()),
    linkExpires: `${dateAndTime.format(facts.activationExpiresAt)} UTC`,
    loginUrl: facts.loginUrl,
  };
  return {
    subject: templates.subject,
    messageId: `<${facts.accountId}.login-instructions${again}@${senderDomain}>`,
    text: templates.text(values),
    html: templates.html(values),
  };
}

const dateAndTime = new Intl.DateTimeFormat('en-GB', { dateStyle: 'full', timeStyle: 'short', timeZone: 'UTC' });

function inDays(milliseconds: number): string {
  const days = Math.round(milliseconds / 86_400_000);
  return `${days} ${days === 1 ? 'day' : 'days'}`;
}

/** Control characters, line and paragraph separators become spaces: a name must not shape the mail around it. */
function oneLine(name: string): string {
  const flat = name
    .toWellFormed()
    .replace(/[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]+/gu, ' ')
    .trim();
  return flat.length > GREETING_NAME_MAX ? `${flat.slice(0, GREETING_NAME_MAX).toWellFormed()}…` : flat;
}
