/** What became of a hand-over, by the relay's answer, and the class of each refusal. */
import type { MailOutcome } from '../account/account.ts';
import type { MailReasonCode } from '../application/reasons.ts';
import { defined } from '../platform/process/defined.ts';

export type RefusalClass =
  /** The relay refuses our sender, before it knows the recipient. */
  | 'relay'
  /** The relay takes less than it is offered, or nothing now. */
  | 'throttled'
  /** No mail can be delivered to the applicant's address. */
  | 'permanent'
  /** The relay blames us for this mail; an operator corrects it. */
  | 'ours'
  /** The mailbox, or this mail, is taken later. */
  | 'busy';

export interface Refusal {
  readonly phase: 'mail' | 'rcpt' | 'data' | 'content';
  readonly code: number;
  /** RFC 3463 status such as `5.1.1`. */
  readonly enhancedCode: string | undefined;
  /** As it came, without addresses. */
  readonly answer: string;
  readonly failure: RefusalClass;
  /** Only of a `permanent` refusal. */
  readonly why?: MailReasonCode;
}

/** `refused`: our login or sender, or our connection for good. `no_capacity`: a 4xx. */
export type PauseReason = 'unreachable' | 'refused' | 'no_capacity';

/** A failure before the relay knows the recipient: it concerns all mail. */
export interface Outage {
  readonly reason: PauseReason;
  readonly error: unknown;
}

/**
 * - `unreachable`: connection, TLS or AUTH failed; if `connected`, this mail may be the cause.
 * - `ambiguous`: the connection ended after the content, so the mail may be out.
 * - `aborted`: we gave up before the content.
 */
export type HandOver =
  | { readonly result: 'accepted'; readonly answer: string }
  | ({ readonly result: 'refused'; readonly outage?: Outage } & Refusal)
  | {
      readonly result: 'unreachable';
      readonly connected: boolean;
      readonly cause: string;
      readonly outage?: Outage;
    }
  | { readonly result: 'ambiguous'; readonly cause: string }
  | { readonly result: 'aborted'; readonly cause: string };

/** nodemailer's errors do not say how far a hand-over came. */
export type Progress = 'connecting' | 'connected' | 'content';

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
  const said = withoutAddresses(answer);
  // A domain such as spam.example must not match.
  const words = said.replaceAll(/\s+/g, ' ');
  const failure = classOfRefusal(phase, code, enhancedCode, words);
  const why = failure === 'permanent' ? reasonOf(enhancedCode, code, words) : undefined;
  return { phase, code, enhancedCode, answer: said, failure, ...defined({ why }) };
}

/** Longer ones are cut: a relay may answer without end. */
const ANSWER_READ = 2_000;

const withoutAddresses = (answer: string): string =>
  answer.slice(0, ANSWER_READ).replace(/\S+@\S+/g, '…');

/** By the status of RFC 3463 first, also of a later bounce; then by the words, then by the code. */
export function reasonOf(status = '', code = 0, words = ''): MailReasonCode {
  const [, byStatus] = STATUSES.find(([pattern]) => pattern.test(status)) ?? [];
  if (byStatus !== undefined) return byStatus;
  if (/full|quota/i.test(words)) return 'mailbox_full';
  if (/disabled|inactive/i.test(words)) return 'mailbox_disabled';
  if (code === 556 || /unrouteable/i.test(words)) return 'domain_refused';
  const unknown = NO_SUCH_MAILBOX.test(words) || (status === '' && NO_MAILBOX_CODES.has(code));
  return unknown ? 'unknown_mailbox' : 'refused';
}

/** Why the applicant's server refused; `classOfRefusal` says whether it did. */
const STATUSES = [
  [/^5\.1\.(?:2|10)$|^5\.4\.4$/, 'domain_refused'],
  [/^5\.1\.[01346]$/, 'unknown_mailbox'],
  [/^5\.2\.1$/, 'mailbox_disabled'],
  [/^[45]\.2\.2$/, 'mailbox_full'],
  [/^5\.7\./, 'policy'],
] as const satisfies readonly (readonly [RegExp, MailReasonCode])[];

/**
 * A wrong `permanent` loses an applicant, so the answer must say it. At MAIL FROM the relay does
 * not know the recipient.
 */
function classOfRefusal(
  phase: Refusal['phase'],
  code: number,
  status = '',
  words: string,
): RefusalClass {
  const mailbox = /^[45]\.[12]\./.test(status);
  const aboutUs = ABOUT_US.test(words);
  const throttled =
    code === 421 || /^4\.[37]\./.test(status) || (THROTTLED.test(words) && !mailbox);
  if (phase === 'mail') return throttled || code < 500 ? 'throttled' : 'relay';
  if (throttled && !GREYLISTED.test(words) && !(aboutUs && !THROTTLED.test(words)))
    return 'throttled';
  if (code < 500) return aboutUs ? 'ours' : 'busy';
  if (aboutUs) return 'ours';
  const byCode = phase === 'rcpt' && status === '' && NO_MAILBOX_CODES.has(code);
  const byStatus = /^5\.[12]\.|^5\.4\.4$/.test(status) && !/^5\.1\.[78]$/.test(status);
  return byCode || byStatus || NO_SUCH_MAILBOX.test(words) ? 'permanent' : 'ours';
}

export const CODES = /^(\d{3})(?:[ -](\d\.\d{1,3}\.\d{1,3})\b)?/;

interface SmtpError extends Error {
  readonly code?: string;
  readonly command?: string;
  readonly responseCode?: number;
  readonly response?: string;
}

export function describeFailure(thrown: unknown, progress: Progress): HandOver {
  const error = (thrown instanceof Error ? thrown : new Error(String(thrown))) as SmtpError;
  const { code, command, responseCode } = error;
  const cause =
    [code, command, responseCode].filter((part) => part !== undefined).join(' ') || error.name;
  const answered = responseCode !== undefined && responseCode >= 400;
  const phase =
    progress === 'content' ? 'content' : progress === 'connected' ? phaseOf(error) : undefined;
  if (answered && phase !== undefined) {
    const refusal = refusalOf(phase, responseCode, error.response);
    const outage = phase === 'mail' ? senderOutage(refusal) : undefined;
    return { result: 'refused', ...refusal, ...defined({ outage }) };
  }
  if (progress === 'content') return { result: 'ambiguous', cause };
  const connected = progress === 'connected';
  const outage = connected ? undefined : outageOf(error);
  return { result: 'unreachable', connected, cause, ...defined({ outage }) };
}

export function senderOutage({ failure, code }: Refusal): Outage {
  const isRefused = failure === 'relay';
  const command = isRefused ? 'MAIL FROM' : undefined;
  const error = Object.assign(new Error('MAIL FROM failed'), { command, responseCode: code });
  return { reason: isRefused ? 'refused' : 'no_capacity', error };
}

/** Of a session that did not come as far as MAIL FROM. */
export function outageOf(thrown: unknown): Outage {
  const { responseCode = 0, command } = thrown as SmtpError;
  const early = responseCode === 421 || command === 'CONN';
  if (early && responseCode >= 400 && responseCode < 500)
    return { reason: 'no_capacity', error: thrown };
  return { reason: responseCode >= 500 ? 'refused' : 'unreachable', error: thrown };
}

function phaseOf({ code, command, responseCode }: SmtpError): 'mail' | 'rcpt' | 'data' | undefined {
  if (code === 'EENVELOPE') return phases[command ?? ''];
  // nodemailer names the failed command, except RCPT.
  return responseCode === 421 ? 'rcpt' : undefined;
}

const phases: Readonly<Record<string, 'mail' | 'rcpt' | 'data'>> = {
  'MAIL FROM': 'mail',
  'RCPT TO': 'rcpt',
  DATA: 'data',
};

/** For the mail ledger; `email` is the applicant's address. */
export function outcomeOf(handOver: HandOver, email: string): MailOutcome {
  const answer = 'answer' in handOver ? withoutMailbox(handOver.answer, email) : undefined;
  return { result: handOver.result, ...details(handOver), ...defined({ answer }) };
}

function details(handOver: HandOver): Partial<MailOutcome> {
  switch (handOver.result) {
    case 'accepted': {
      const [, code, enhancedCode] = CODES.exec(handOver.answer) ?? [];
      return {
        phase: 'answered',
        ...(code === undefined ? {} : { code: Number(code) }),
        ...defined({ enhancedCode }),
      };
    }
    case 'refused':
      return {
        phase: handOver.phase,
        code: handOver.code,
        ...defined({ enhancedCode: handOver.enhancedCode }),
      };
    case 'unreachable':
      return { phase: handOver.connected ? 'session' : 'connect', cause: handOver.cause };
    case 'ambiguous':
      return { phase: 'content', cause: handOver.cause };
    case 'aborted':
      return { cause: handOver.cause };
  }
}

const ANSWER_MAX = 300;

/** A relay may name the mailbox without its domain, and without what follows a plus. */
function withoutMailbox(answer: string, email: string): string {
  const mailbox = email.slice(0, email.lastIndexOf('@'));
  const said = withoutWord(withoutAddresses(answer), mailbox);
  return withoutWord(said, mailbox.split('+', 1)[0] ?? '')
    .slice(0, ANSWER_MAX)
    .toWellFormed();
}

const INSIDE_A_WORD = /[\p{L}\p{N}]/u;

/** Compiles no pattern, because this is done for each e-mail. Compares without case. */
function withoutWord(text: string, word: string): string {
  if (word === '') return text;
  const lower = text.toLowerCase();
  // Few letters change their length, and then no place would be right.
  const [within, wanted] =
    lower.length === text.length ? [lower, word.toLowerCase()] : [text, word];
  let [left, from] = ['', 0];
  for (let at = within.indexOf(wanted); at >= 0; at = within.indexOf(wanted, at + 1)) {
    if (at < from) continue;
    const end = at + wanted.length;
    // The last character may be the second half of a letter beyond the 16-bit range.
    const before = /[^]$/u.exec(text.slice(Math.max(0, at - 2), at))?.[0] ?? '';
    const after = String.fromCodePoint(text.codePointAt(end) ?? 0);
    if (INSIDE_A_WORD.test(before) || INSIDE_A_WORD.test(after)) continue;
    left += `${text.slice(from, at)}…`;
    from = end;
  }
  return left + text.slice(from);
}
