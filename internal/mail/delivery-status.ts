/** Reads bounces: delivery status notifications (RFC 3464) or plain text. */
import PostalMime from 'postal-mime';
import { defined } from '../platform/defined.ts';
import { isEmailAddress, isHostName } from '../application/email-address.ts';

export interface BouncedMail {
  /** RFC 3463 status such as `5.1.1`. */
  readonly status?: string;
  readonly messageId?: string;
  readonly recipients: readonly string[];
  holdsIdOf(answer: string): boolean;
}

export type Notification =
  | ({ readonly kind: 'failed' } & BouncedMail)
  | { readonly kind: 'no_failure'; readonly action: string }
  /** Continues a sentence that begins with "it". */
  | { readonly kind: 'none'; readonly why: string };

/** A forwarded notification has depth 3. */
const DEPTH_MAX = 5;
const PARTS_MAX = 100;
const HEADERS_MAX_BYTES = 65_536;
/** Each recipient costs a look-up. */
const RECIPIENTS_MAX = 20;

/** A line takes about 10 µs. */
const LINES_MAX = 10_000;

class TooMuch extends Error {}

export async function readNotification(source: string): Promise<Notification> {
  const lines = source.trimStart().split(/\r\n|\r|\n/);
  // Mailbox files begin with a `From` line.
  if (/^>?From /.test(lines[0] ?? '')) lines.shift();
  const text = lines.join('\n');
  let mail: Mail;
  try {
    if (lines.length > LINES_MAX) throw new TooMuch(`more than ${LINES_MAX} lines`);
    mail = await parse(text, 1, { parts: 0 });
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    return { kind: 'none', why: `cannot be read as an e-mail (${why})` };
  }
  const reporting = all(mail).find(({ reports }) => reports.length > 0);
  const verdict =
    reporting === undefined ? undefined : verdictOfReport(reporting.reports.join('\n\n'));
  if (reporting !== undefined && verdict !== undefined)
    return notificationOf(mail, reporting, verdict, text);
  for (const one of all(mail)) {
    const inWords = verdictInWords(one);
    if (inWords !== undefined) return notificationOf(mail, one, inWords, text);
  }
  return { kind: 'none', why: 'is no notification of a mail that could not be delivered' };
}

interface Mail {
  readonly headers: readonly { readonly key: string; readonly value: string }[];
  readonly text: string;
  readonly reports: readonly string[];
  readonly returnedHeaders: readonly string[];
  readonly inside: readonly Mail[];
}

async function parse(source: string, depth: number, counted: { parts: number }): Promise<Mail> {
  if (depth > DEPTH_MAX) throw new TooMuch(`more than ${DEPTH_MAX} mails in each other`);
  const email = await PostalMime.parse(source, {
    forceRfc822Attachments: true,
    attachmentEncoding: 'utf8',
    maxNestingDepth: PARTS_MAX,
    maxHeadersSize: HEADERS_MAX_BYTES,
  });
  counted.parts += email.attachments.length;
  if (counted.parts > PARTS_MAX) throw new TooMuch(`more than ${PARTS_MAX} parts`);
  const parts = email.attachments.map(({ mimeType, content }) => ({
    type: mimeType,
    text: asText(content),
  }));
  const textsOf = (type: RegExp): string[] =>
    parts.filter((part) => type.test(part.type)).map(({ text }) => text);
  const inside: Mail[] = [];
  for (const text of textsOf(/^message\/(?:rfc822|global)$/))
    inside.push(await parse(text, depth + 1, counted));
  return {
    headers: email.headers,
    text: [
      email.text ?? '',
      withoutTags(email.html ?? ''),
      ...textsOf(/^text\/(?!rfc822-headers)/),
    ].join('\n'),
    reports: textsOf(/^message\/(?:global-)?delivery-status$/),
    returnedHeaders: textsOf(/^(?:text|message)\/(?:rfc822|global)-headers$/),
    inside,
  };
}

function asText(content: ArrayBuffer | Uint8Array | string): string {
  return (typeof content === 'string' ? content : new TextDecoder().decode(content)).replaceAll(
    '\r\n',
    '\n',
  );
}

function withoutTags(html: string): string {
  const entities: Record<string, string> = {
    '&lt;': '<',
    '&gt;': '>',
    '&amp;': '&',
    '&nbsp;': ' ',
  };
  return html
    .replaceAll(/<br\b[^<>]*>|<\/(?:p|div|tr|li)>/gi, '\n')
    .replaceAll(/<[^<>]*>/g, ' ')
    .replaceAll(/&(?:lt|gt|amp|nbsp);/g, (entity) => entities[entity] ?? '');
}

function all(mail: Mail): Mail[] {
  return [mail, ...mail.inside.flatMap(all)];
}

function header(mail: Mail, name: string): string {
  return mail.headers.find(({ key }) => key === name)?.value ?? '';
}

interface Verdict {
  readonly action: string;
  readonly status: string | undefined;
  readonly recipients: string;
}

const FAILED = 'failed';

/** The first failed recipient counts. */
function verdictOfReport(report: string): Verdict | undefined {
  const groups = report
    .split(/\n[ \t]*\n/)
    .map(fieldsOf)
    .filter((fields) => fields.has('action') || fields.has('status'));
  const verdicts = groups.map((fields): Verdict => {
    const status = statusIn(fields.get('status') ?? '');
    const inWords = statusIn(fields.get('diagnostic-code') ?? '');
    const action = /^[\w-]+/.exec(fields.get('action') ?? '')?.[0].toLowerCase();
    return {
      action:
        action === undefined ? (status?.startsWith('5') === true ? FAILED : '') : named(action),
      // Many servers have the real status only in the diagnostic text.
      status: status === undefined || status.endsWith('.0.0') ? (inWords ?? status) : status,
      recipients: `${fields.get('original-recipient') ?? ''} ${fields.get('final-recipient') ?? ''}`,
    };
  });
  return verdicts.find(({ action }) => action === FAILED) ?? verdicts[0];
}

function fieldsOf(lines: string): ReadonlyMap<string, string> {
  const fields = new Map<string, string>();
  for (const line of unfold(lines).split('\n')) {
    const colon = line.indexOf(':');
    const name = line.slice(0, Math.max(0, colon)).trim().toLowerCase();
    if (name !== '' && !fields.has(name)) fields.set(name, line.slice(colon + 1).trim());
  }
  return fields;
}

function unfold(lines: string): string {
  return lines.replaceAll(/\n[ \t]+(?=\S)/g, ' ');
}

function statusIn(text: string): string | undefined {
  return /(?<![\d.])[245]\.\d{1,3}\.\d{1,3}(?![\d.]*\d)/.exec(text)?.[0];
}

function named(action: string): string {
  return /^(?:fail|expired)/.test(action) ? FAILED : action;
}

const DAEMON =
  /mailer[- ]?daemon|postmaster|mail(?:er)?[ -]?(?:delivery|administrator)|mail ?(?:sub)?system/i;
/** The returned mail does not say why it failed. */
const COPY =
  /^(?:[-=_*]{2,40}[^\n]{0,100}\b(?:copy|original|returned|below|message)\b|(?:received|return-path|message-id):)/im;
const DELAY =
  /\bdelay(?:ed\b|\))|not yet been delivered|(?:keep|continue|still) (?:on )?trying|will be retried|warning: (?:message|could not)|temporary failure report/i;
const GIVEN_UP = /giv(?:en|ing) up|permanent(?:ly)? (?:error|fail)/i;
const FAILURE =
  /undeliver|\b(?:not|unable to) (?:be )?deliver|n.t (?:be )?deliver|deliver\w* (?:has )?fail|\bfail(?:ed|ure)\b|given up|did not reach|could not be (?:reached|sent)|\breturned\b|\breject|error (?:has )?occurred|unknown (?:user|recipient|address)|\b5[0-5]\d[ -]/i;

/** Undefined for a person's mail, such as an out-of-office reply. */
function verdictInWords(mail: Mail): Verdict | undefined {
  const subject = header(mail, 'subject');
  const failed = header(mail, 'x-failed-recipients');
  const toNobody = header(mail, 'return-path') === '<>' && FAILURE.test(subject);
  if (failed === '' && !toNobody && !DAEMON.test(header(mail, 'from'))) return undefined;
  const words = `${subject}\n${mail.text.slice(0, COPY.exec(mail.text)?.index)}`;
  const status = statusIn(words);
  if (DELAY.test(words) && !GIVEN_UP.test(words))
    return { action: 'delayed', status, recipients: '' };
  if (!FAILURE.test(words) && status?.startsWith('5') !== true) return undefined;
  return { action: FAILED, status, recipients: `${failed} ${words}` };
}

function notificationOf(
  outermost: Mail,
  notification: Mail,
  verdict: Verdict,
  source: string,
): Notification {
  const { action, status, recipients } = verdict;
  if (action !== FAILED) return { kind: 'no_failure', action };
  const messageId = messageIdIn(notification, source);
  const returned = [
    ...notification.returnedHeaders.map((headers) => fieldsOf(headers).get('to') ?? ''),
    ...notification.inside.flatMap(all).map((mail) => header(mail, 'to')),
  ];
  const everything = all(outermost)
    .flatMap((mail) => [
      mail.headers.map(({ value }) => value),
      mail.text,
      mail.reports,
      mail.returnedHeaders,
    ])
    .flat()
    .join('\n');
  return {
    kind: 'failed',
    ...defined({ status, messageId }),
    recipients: addressesIn([recipients, ...returned, notification.text].join('\n')),
    holdsIdOf: (answer) => idsIn(answer).some((id) => holdsWord(everything, id)),
  };
}

const OUR_MESSAGE_ID = /acc_[0-9a-z]{26}\.login-instructions(?:\.\d{1,9})?@[^\s<>"]+/;

/** Other mails may refer to our id, so the returned mail comes first. */
function messageIdIn(
  { headers, text, reports, returnedHeaders, inside }: Mail,
  source: string,
): string | undefined {
  const written = [text, ...reports, ...returnedHeaders].join('\n');
  const returned = [
    ...inside.flatMap(all).map((mail) => header(mail, 'message-id')),
    ...messageIdLines(written),
  ];
  const given = returned.filter((id) => id.trim() !== '');
  if (given.length > 0) return ourMessageId(given);
  const references = headers.filter(({ key }) => key === 'references' || key === 'in-reply-to');
  // Malformed notifications may have the id anywhere.
  return ourMessageId([
    ...references.map(({ value }) => value),
    written,
    ...messageIdLines(source),
  ]);
}

function ourMessageId(texts: readonly string[]): string | undefined {
  return OUR_MESSAGE_ID.exec(texts.join('\n'))?.[0];
}

function messageIdLines(text: string): string[] {
  const lines = unfold(text).matchAll(/^[> \t]{0,20}(?:X-)?(?:Original-)?Message-ID:(.*)$/gim);
  return [...lines].map(([, id]) => id ?? '');
}

function addressesIn(text: string): string[] {
  const found = text.match(/[^\s<>()"',;:[\]]{1,64}@[A-Za-z0-9.-]{1,253}/g) ?? [];
  const addresses = found.map((one) => one.replace(/\.$/, '')).filter(isEmailAddress);
  return [...new Set(addresses)].slice(0, RECIPIENTS_MAX);
}

const ID_MIN_LENGTH = 8;

function idsIn(answer: string): string[] {
  return answer
    .split(/[\s<>()[\]{}"',;=]+/)
    .map((word) => word.replace(/\.$/, ''))
    .filter(
      (word) =>
        word.length >= ID_MIN_LENGTH && /\d/.test(word) && /[a-z]/i.test(word) && !isHostName(word),
    );
}

function holdsWord(text: string, word: string): boolean {
  const isPart = (character: string | undefined): boolean =>
    character !== undefined && /[a-z0-9]/i.test(character);
  for (let at = text.indexOf(word); at >= 0; at = text.indexOf(word, at + 1)) {
    if (!isPart(text[at - 1]) && !isPart(text[at + word.length])) return true;
  }
  return false;
}
