/** The e-mail to the applicant: login instructions in text and HTML. */
import type { Account, Activation } from '../account/account.ts';
import { domainOf } from '../application/email-address.ts';
import { DAY_MS, later } from '../platform/process/clock.ts';
import { referenceOf } from '../platform/stores/ids.ts';
import { activationLink } from './activation.ts';
import type { Templates } from './templates.ts';

export interface MailSettings {
  readonly from: string;
  readonly loginUrl: string;
  readonly linkSecret: string;
  readonly supportContact?: string | undefined;
  readonly templates: Templates;
}

export interface Message {
  readonly subject: string;
  readonly text: string;
  readonly html: string;
  /** A repeated e-mail has the same one, so that servers may drop it. */
  readonly messageId: string;
}

const GREETING_NAME_MAX = 120;
const LINK_DAYS = 7;

/** Returns the e-mail of an account, and the `activation` to store for its link. */
export function loginInstructions(
  account: Account,
  settings: MailSettings,
  writtenAt: Date,
): { readonly message: Message; readonly activation: Omit<Activation, 'usedAt'> } {
  const { from, loginUrl, supportContact, templates } = settings;
  const { url, ...link } = activationLink(account, settings);
  const expiresAt = later(writtenAt, LINK_DAYS * DAY_MS);
  const again = account.mailVersion === undefined ? '' : `.${account.mailVersion}`;
  const values = {
    businessName: harmless(account.businessName),
    userName: account.email,
    activationUrl: url,
    linkDays: `${LINK_DAYS} days`,
    linkExpires: `${dateAndTime.format(expiresAt)} UTC`,
    loginUrl,
    reference: referenceOf(account.requestId),
    support: supportSentence(supportContact),
  };
  const message = {
    subject: templates.subject,
    messageId: `<${account._id}.login-instructions${again}@${domainOf(from)}>`,
    text: templates.text(values),
    html: templates.html(values),
  };
  return { message, activation: { ...link, expiresAt } };
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

function supportSentence(contact: string | undefined): string {
  return contact === undefined
    ? 'Give it in every question about your account.'
    : `Questions? Contact ${contact} and give this number.`;
}

/** Matches what mail programs turn into links. */
const LINK =
  /:\/\/|\bwww\.|\S@\S|(?:\d{1,3}\.){3}\d|\b(?:mailto|tel|javascript|data):|\p{L}\.\p{L}{2,}[/:?#]/iu;
const INSTRUCTION = /[:!?]\s+\S+\s+\S/u;
/** Mail programs link `evil.example`, but not `evil example`. */
const HOST_DOT = /(?<=[\p{L}\p{N}-]\p{Cf}*)[.\u3002\uff0e\uff61](?=\p{Cf}*\p{L}{2})/gu;

/** Strangers choose the name: quotes it, or drops it if it has a link or an instruction. */
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
