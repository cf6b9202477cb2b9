/** The e-mail to the applicant: login instructions in text and HTML. */
import type { Templates } from './templates.ts';

export interface LoginInstructions {
  readonly accountId: string;
  /** A repeat keeps the version. */
  readonly mailVersion?: number;
  readonly businessName: string;
  readonly reference: string;
  readonly supportContact?: string;
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
  /** A repeat keeps it, so that servers may drop the mail. */
  readonly messageId: string;
}

const GREETING_NAME_MAX = 120;

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

/** Mail programs turn these into links. */
const LINK =
  /:\/\/|\bwww\.|\S@\S|(?:\d{1,3}\.){3}\d|\b(?:mailto|tel|javascript|data):|\p{L}\.\p{L}{2,}[/:?#]/iu;
const INSTRUCTION = /[:!?]\s+\S+\s+\S/u;
/** Mail programs link `evil.example`, but not `evil example`. */
const HOST_DOT = /(?<=[\p{L}\p{N}-]\p{Cf}*)[.\u3002\uff0e\uff61](?=\p{Cf}*\p{L}{2})/gu;

/** Others choose the name, so it is quoted, or left out if it has a link or an instruction. */
function harmless(name: string): string {
  const flat = oneLine(name);
  // Readers do not see invisible characters or look-alikes such as `．`.
  const seen = oneLine(name.normalize('NFKC').replaceAll(/\p{Cf}/gu, ''));
  if (seen === '' || LINK.test(seen) || INSTRUCTION.test(seen)) return 'your business';
  return `“${flat.replaceAll(HOST_DOT, ' ').replaceAll(/[“”]/g, '"')}”`;
}

function oneLine(name: string): string {
  const flat = name
    .toWellFormed()
    .replace(/[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]+/gu, ' ')
    .trim();
  return flat.length > GREETING_NAME_MAX
    ? `${flat.slice(0, GREETING_NAME_MAX).toWellFormed()}…`
    : flat;
}
