/** The templates of the e-mail, checked at start so that rendering cannot fail. */
import { isUtf8 } from 'node:buffer';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

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
  return (values) =>
    template.replaceAll(PLACEHOLDER, (_, name: keyof TemplateValues) => escape(values[name]));
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
