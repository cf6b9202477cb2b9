/** The e-mail to the applicant: login instructions in text and HTML, their link and templates. */
import type { Account, Activation } from '../account/account.ts';
import { domainOf } from '../application/fields.ts';
import { DAY_MS, later } from '../platform/process/clock.ts';
import { referenceOf } from '../platform/stores/ids.ts';
import { createHmac, hash } from 'node:crypto';
import { defined } from '../platform/process/defined.ts';
import { isUtf8 } from 'node:buffer';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

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

/* The one-time activation link: its token is derived from LINK_SECRET and stored as a hash. */

interface ActivationLink extends Pick<Activation, 'tokenHash' | 'keyId'> {
  readonly url: string;
}

interface LinkKey {
  readonly id?: string;
  readonly secret: string;
}

const SECRET_MIN = 32;
const KEY_ID = /^key-[a-z0-9-]{1,20}$/;
const isOneCharacter = (secret: string): boolean => new Set(secret).size === 1;
const NAMED = /^(key-[^:]*):(.*)$/s;

/** Parses `secret`, `key-…:secret` or two of the latter; the second only derives older links. */
function linkKeys(linkSecret: string): readonly [LinkKey, ...LinkKey[]] {
  // A secret without a key id may contain commas.
  const entries = /(?:^|,)key-[^,:]*:/.test(linkSecret) ? linkSecret.split(',') : [linkSecret];
  const [first = { secret: '' }, ...others] = entries.map((entry): LinkKey => {
    const [, id, secret = entry] = NAMED.exec(entry) ?? [];
    return id === undefined ? { secret } : { id, secret };
  });
  return [first, ...others];
}

export function linkSecretFault(linkSecret: string): string | undefined {
  const keys = linkKeys(linkSecret);
  const [first, second] = keys;
  if (keys.length > 2) return 'has more than two secrets';
  if (keys.some(({ id }) => id !== undefined && !KEY_ID.test(id))) {
    return 'a key id is "key-" and 1 to 20 small letters, digits or hyphens';
  }
  if (keys.some(({ secret }) => secret.length < SECRET_MIN)) {
    return `must have at least ${SECRET_MIN} characters, each secret for itself`;
  }
  if (keys.some(({ secret }) => isOneCharacter(secret))) {
    return 'can be guessed: make one with "openssl rand -hex 32"';
  }
  return second !== undefined && second.id === first.id
    ? 'both secrets have the same key id'
    : undefined;
}

/** A repeated e-mail has the same link, so the first still works; a new `linkVersion` voids it. */
export function activationLink(
  { _id, activation, linkVersion = 0 }: Pick<Account, '_id' | 'activation' | 'linkVersion'>,
  { loginUrl, linkSecret }: { readonly loginUrl: string; readonly linkSecret: string },
): ActivationLink {
  const keys = linkKeys(linkSecret);
  const { id, secret } =
    keys.find((key) => activation !== undefined && key.id === activation.keyId) ?? keys[0];
  const subject = linkVersion === 0 ? `activation:${_id}` : `activation:${_id}:${linkVersion}`;
  const token = createHmac('sha256', secret).update(subject).digest('base64url');
  const url = new URL(loginUrl);
  url.searchParams.set('account', _id);
  url.searchParams.set('token', token);
  const tokenHash = hash('sha256', token, 'hex');
  return { url: url.href, tokenHash, ...defined({ keyId: id }) };
}

/* The templates of the e-mail, checked at start so that rendering cannot fail. */

export const placeholders = {
  businessName:
    'name of the business in quotation marks, on one line, cut after 120 characters, without links',
  userName: "the applicant's e-mail address, which is the user name",
  activationUrl: 'the one-time activation link; the text and the HTML must have it',
  linkDays: 'how long the link works, such as `7 days`',
  linkExpires: 'until when it works, such as `Tuesday, 8 December 2026 at 09:05 UTC`',
  loginUrl: '`LOGIN_URL`',
  reference: 'reference number of the request, such as `01M7-YEFD-J3FA-NTPJ`',
  support: 'a sentence about questions, with `MAIL_SUPPORT_CONTACT` where it is set',
} as const;

export type TemplateValues = Readonly<Record<keyof typeof placeholders, string>>;

export interface Templates {
  readonly subject: string;
  readonly text: (values: TemplateValues) => string;
  readonly html: (values: TemplateValues) => string;
}

export const templateFiles = {
  subject: 'login-instructions.subject.txt',
  text: 'login-instructions.txt',
  html: 'login-instructions.html',
} as const;

/** `npm run build` copies our templates into `dist/`. */
const BUILT_IN = fileURLToPath(new URL('./templates/', import.meta.url));

/** Mail programs cut off larger mails. */
const FILE_MAX_BYTES = 100_000;
/** RFC 5322 §2.1.1. */
const SUBJECT_MAX = 78;

export class TemplateError extends Error {
  override readonly name = 'TemplateError';
  readonly faults: readonly string[];
  constructor(folder: string, faults: readonly string[]) {
    super(
      `MAIL_TEMPLATES: ${faults.length} fault(s) in ${folder}:\n${faults.map((fault) => `  ${fault}`).join('\n')}`,
    );
    this.faults = faults;
  }
}

/** Throws `TemplateError` with every fault. */
export async function loadTemplates(folder = ''): Promise<Templates> {
  const from = folder === '' ? BUILT_IN : folder;
  const faults: string[] = [];
  const read = async (kind: keyof typeof templateFiles): Promise<string> => {
    const file = templateFiles[kind];
    const { text = '', fault } = await readText(join(from, file));
    const found = fault === undefined ? faultsOf(kind, text) : [fault];
    faults.push(...found.map((words) => `${file}: ${words}`));
    return text;
  };
  const subject = await read('subject');
  const text = await read('text');
  const html = await read('html');
  if (faults.length > 0) throw new TemplateError(from, faults);
  return {
    subject: subject.trim(),
    text: compile(text),
    html: compile(html, escapeHtml),
  };
}

async function readText(
  path: string,
): Promise<{ readonly text?: string; readonly fault?: string }> {
  try {
    const bytes = await readFile(path);
    if (bytes.length > FILE_MAX_BYTES) return { fault: `is larger than ${FILE_MAX_BYTES} bytes` };
    if (!isUtf8(bytes)) return { fault: 'is not UTF-8' };
    return { text: new TextDecoder().decode(bytes).replaceAll(LINE_END, '\n') };
  } catch (error) {
    const { code = 'unknown error' } = error as NodeJS.ErrnoException;
    return { fault: `cannot be read (${code})` };
  }
}

const LINE_END = /\r\n?|\n/g;

/** Also matches unfinished placeholders. */
const PLACEHOLDER = /\{\{\s*(\w+)\s*\}\}|\{\{|\}\}/g;

function faultsOf(kind: keyof typeof templateFiles, text: string): string[] {
  if (text.trim() === '') return ['is empty'];
  const found = [...text.matchAll(PLACEHOLDER)].map((match) => ({
    name: match[1],
    line: lineOf(text, match.index),
  }));
  const faults = found.flatMap(({ name, line }) => {
    if (name === undefined)
      return [`line ${line}: braces without a partner; a placeholder looks like {{loginUrl}}`];
    if (Object.hasOwn(placeholders, name)) return [];
    return [
      `line ${line}: {{${name}}} is unknown; there are ${Object.keys(placeholders).join(', ')}`,
    ];
  });
  if (kind === 'subject') {
    const subject = text.trim();
    // Applicants must not choose the subject, which decides whether the e-mail is opened.
    if (found.length > 0) faults.push('must have no placeholders');
    if (/[\p{Cc}\p{Zl}\p{Zp}]/u.test(subject))
      faults.push('must be one line without control characters');
    if (subject.length > SUBJECT_MAX) faults.push(`must have at most ${SUBJECT_MAX} characters`);
    return faults;
  }
  if (!found.some(({ name }) => name === 'activationUrl'))
    faults.push('has no {{activationUrl}}: nobody could log in');
  if (kind === 'html') faults.push(...unsafeHtml(text));
  return faults;
}

/** Escaping protects only text and quoted attributes. */
function unsafeHtml(text: string): string[] {
  const unsafe = [
    [
      /<(?:script|style)\b[^>]*>(?:(?!<\/(?:script|style))[^])*?\{\{/gi,
      'a placeholder inside <script> or <style>',
    ],
    [/=\s*\{\{/g, 'an attribute without quotes; write ="{{…}}"'],
    [
      /\b(?:href|src)\s*=\s*["']?\{\{\s*(?!(?:loginUrl|activationUrl)\b)/gi,
      'href and src take loginUrl and activationUrl only',
    ],
  ] as const;
  return unsafe.flatMap(([pattern, words]) =>
    [...text.matchAll(pattern)].map((match) => `line ${lineOf(text, match.index)}: ${words}`),
  );
}

function lineOf(text: string, index: number): number {
  return text.slice(0, index).split('\n').length;
}

function compile(
  template: string,
  escape = (value: string): string => value,
): (values: TemplateValues) => string {
  // Text and names take turns.
  const parts = template.split(PLACEHOLDER);
  return (values) => {
    let written = '';
    for (const [index, part] of parts.entries())
      written += index % 2 === 0 ? part : escape(values[part as keyof TemplateValues]);
    return written;
  };
}

function escapeHtml(text: string): string {
  const entities: Record<string, string> = {
    '&': '&amp;',
    '<': '&lt;',
    '>': '&gt;',
    '"': '&quot;',
    "'": '&#39;',
  };
  return text.replace(/[&<>"']/g, (character) => entities[character] ?? character);
}
