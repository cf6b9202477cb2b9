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
  /** For good by its words, but the relay has the same for others (relay-trust.ts). */
  readonly alike?: true;
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

/** One pattern of all alternatives, compiled once. It is tested against `wordsOf` an answer. */
const anyOf = (...alternatives: readonly string[]): RegExp => new RegExp(alternatives.join('|'));

/** Our sender, login, address, domain, content or contract; and what a relay blocks. */
const ABOUT_US = anyOf(
  String.raw`\b(?:senders?|sending|sent by|outgoing|originator|submission|sasl)\b|absender|exp[eé]diteur|rem[ie]tente|mittente|afzender|nadawca|\bfrom (?:address|domain|header)|\bfrom:|mail from|envelope[- ]from|return[- ]path|smtp (?:user|account)`,
  // "relay recipient table" is where Postfix looks recipients up.
  String.raw`\brelay(?:ed|ing|s)?\b(?! recipient)|rcpthosts|gateway|local users? only|\bnot local|non-local`,
  String.raw`authenti|authori[sz]|credential|password|\blog ?in\b|permission|(?:allowed|rights?) to (?:send|submit|use)|permitted|(?<!mailbox name )(?<!mailbox name is )not allowed|(?<!rcptrejected: access )\bdenied\b|(?:service|connection|delivery|access) (?:refused|dropped)|refused by`,
  String.raw`polic(?:y|ies)|prohibit|administrative|spam|junk|unsolicited|bulk|virus|malware|phish|abus|suspicious|content`,
  String.raw`reputation|block|black ?list|deny ?list|\brbl\b|dns-?bl|\bbanned|(?<!not )\blisted|quarantin|backscatter`,
  String.raw`\b(?:spf|dkim|dmarc|batv|ptr|rdns|tls|ssl|helo|ehlo|ips?|client (?:host|account|address|was|blocked)|outbound)\b|(?:unknown|invalid) client|address literal|reverse|dynamic|certificate|encrypt`,
  String.raw`\byour (?:[\w-]+ ){0,3}?(?:account|domain|ips?|address|server|host|network|organi[sz]ation|mailbox|service|plan|subscription|isp|provider|connection|system|dns|identity|tenant|company|limit|quota|allowance)\b`,
  String.raw`\bapi\b|\bauth\b|unpaid|(?:on|of) (?:this|the|your) plan\b|\bheaders?\b|reply-to|syntax check|utf-?8|ascii|internationali[sz]ed|(?:allow|white) ?list|development mode`,
  String.raw`\b(?:source|peer|connecting|trusted|session|tokens?|smart ?host|user ?names?)\b|account (?:id|number)|recipients? (?:count|number)|user agent|(?:server|remote) address|domain (?:is )?not in (?:my|our)|marked as inactive|found inactive|suppress`,
  String.raw`(?:invalid|bad|missing) dns|weren't sent|\b(?:sc|dy|ou|rp)-00\d|for explanation visit|no smtp service|undeliverable address:.*access denied`,
  String.raw`message (?:size|length|(?:is )?too)|too (?:large|big)\b`,
  String.raw`suspen|not verified|(?<!callout )verif\w+ fail|not be verified|sandbox|trial|billing|payment|credits?\b|licen[cs]e|\bhops?\b|\bloop`,
);
/** A limit of what we send. */
const SENDING_LIMIT = anyOf(
  String.raw`(?:sending|submission|outbound|outgoing|relay) (?:[\w-]+ ){0,2}(?:limits?|quotas?)\b|\bcredits?\b`,
  String.raw`\bper[- ](?:second|minute|hour|day)\b|\bhourly\b|\bdaily\b|\btoday\b|\bmax(?:imum)? (?:e-?mails|messages)\b|(?:quotas?|limits?) (?:of|for|on) (?:[\w-]+ ){0,2}?(?:sent|sending|e-?mails|mails|messages|recipients)\b`,
);
const RATE = anyOf(
  String.raw`throttl|rate[- ]?(?:limit|control)|too many (?!hops)|too (?:fast|quickly|frequent|busy)|too much mail|at a rate|\brate (?:is )?too high|server (?:is )?busy`,
  String.raw`(?:maximum|allowed) (?:number of (?:[\w-]+ )?)?(?:e-?mails?|messages|recipients|connections|sessions)`,
  String.raw`(?:send|messages?|e-?mails?|smtp|connection|thread|volume|receive) (?:(?!size )[\w-]+ ){0,2}(?:limits?|quotas?|rate|allowance|threshold)\b`,
  String.raw`recipients? (?:rate )?(?:limits?|rate)\b|(?<!size )exceed\w* (?:(?!size )[\w'-]+ ){0,4}?(?:limits?|threshold|rate|allowance)\b`,
);
/** Of what is not said. */
const OVER_A_LIMIT = /(?:limit|quota|rate) (?:has been |is |was )?exceeded/;
/** The recipient, or this e-mail, is taken later. */
const LATER = anyOf(
  String.raw`\b(?:try|retry|send|resend)(?: [\w-]+){0,4} (?:again|later)\b|\b(?:later|retry|re-?try)\b|temporar|for now\b|transient|defer|momentar`,
  String.raw`at (?:this|the) (?:time|moment)|currently (?:[\w-]+ )?(?:unavailable|suspended|disabled|locked|not)\b|unverified|in progress|maintenance|overload`,
  String.raw`ldap|(?<!listed in domino )\bdirectory\b|\bdatabase\b|(?:internal|system|soft|server|transport|configuration|i\/o) error|servfail|\bdns (?:[\w-]+ ){0,4}?(?:fail|error|problem)|name ?server (?:did|does|is|was|fail)|look-?up fail|service unavailable|transport unavailable`,
  String.raw`unreachable|not reachable|no route|refused to talk|\byet\b|available now\b|\b(?:tomorrow|until|minutes)\b|migrat|come back|during an?\b`,
  String.raw`\bbusy\b|time(?:d)?[- ]?out|connection (?:refused|lost|reset)|lost connection|\block(?:ed)?\b|\b(?:down|offline)\b|(?:disk|storage|memory|spool) (?:is )?full|out of memory|\b(?:cannot|could not|can't|unable to) (?:be )?(?:open|read|load|append|update|create)|gr[ae]y-?list`,
);
/** Advice such as "please check the address and try again". */
const ADVICE = /\b(?:please|try|and) (?:to )?(?:verify|(?:double-)?check(?:ing)?)\b[^.;]{0,100}/g;

/** These speak of the recipient's mailbox or domain. */
const FULL = anyOf(
  String.raw`(?:mail ?box|mail ?dir|inbox|mailfolder|\busers?|recipient|(?:e-?mail|user|this) account)\b[^.;]{0,60}?\b(?:full\b|(?:over|exceed\w*|out of|reached|above) (?:[\w'-]+ ){0,4}?(?:quota|storage|disk|space)\b)`,
  String.raw`full (?:mail|in)box|\baccount (?:[\w-]+ ){0,2}(?:full\b|exceed\w* (?:[\w'-]+ ){0,3}?(?:disk|storage)\b)|\b(?:over ?quota|dis[ck] ?quota)\b(?! of)|mail ?box (?:[\w-]+ ){0,4}(?:quota|limit)\b`,
);
const NO_DOMAIN = anyOf(
  String.raw`unroute?able|host unknown name server|host or domain name not found|non-?existent (?:domain|hosts)|null ?mx`,
  String.raw`\b(?:recipient|rcptrejected|destination|dns)\b[^.;]{0,60}?\bdomain\b[^.;]{0,60}?\b(?:not (?:be )?found|unknown|does(?: not|n't) exist)`,
  String.raw`able to find the recipient domain|(?:domain|host)\b[^.;]{0,40}?\b(?:does(?: not|n't) accept|accepts no) (?:any )?(?:e-?)?mail\b(?! \w)`,
);
const DISABLED = anyOf(
  String.raw`(?:mail ?box|recipient|\buser|this (?:e-?mail )?(?:account|address)|(?:e-?mail|user) account)\b[^.;]{0,50}?\b(?:disabled|deactivated|inactive|not active|discontinued|terminated|deleted)\b`,
  String.raw`account (?:is )?(?:inactive|not active)|inactive (?:user|account|recipient|mailbox)|(?:mailbox|account|address) (?:[\w-]+ ){0,2}closed\b`,
);
const UNKNOWN = anyOf(
  String.raw`\bno (?:such|known) (?:\w+ ){0,2}?(?:user|mail ?box|recipient|account|address|person|addressee|customer|e-?mail)`,
  String.raw`\b(?:unknown|nonexistent|non-existent|bad|wrong|invalid|illegal)[ /-](?:or \w+ )?(?:[\w-]+[ /]){0,2}?(?:user|recipient|mail ?box|address|account|e-?mail|local[- ]part)|userunknown`,
  String.raw`(?:\busers?|mail ?box|recipients?|addressee|address|\baccount|local[- ]part)\b[^.;]{0,80}?\b(?:unknown|invalid|not (?:be )?(?:found|known|exist\w*|valid|recogni[sz]ed|registered|listed|present)|(?:does|do|did)(?: not|n't) exist|\w+n't (?:be )?found|no longer (?:valid|exists?|active|available|in use|accept\w*|receiv\w*|on|with|here))\b`,
  String.raw`\buser (?:does(?: not|n't)) have an?\b|not listed in (?:domino directory|public name)|(?:is not|isn't|not) an? (?:valid|known|active) (?:user|recipient|mail ?box|address)`,
  String.raw`\bno (?:mail ?box|account|user|one) (?:is )?(?:here|by|with|at|found|available)|mail ?box (?:is )?(?:unavailable|not (?:available|present))(?! or\b)|mailbox name not allowed`,
);

/** Of RFC 3463 and RFC 7505, those that speak of the recipient's mailbox or domain. */
const OF_RECIPIENT = /^5\.(?:1\.(?:[1-46]|10)|2\.2)$/;
/** Other 5xx refuse the command, our login or the relay itself. */
const MAY_BE_FINAL = /^(?:501|51[0-7]|55\d)$/;

export function refusalOf(phase: Refusal['phase'], code: number, answer = ''): Refusal {
  const said = withoutAddresses(answer);
  const enhancedCode = CODES.exec(answer)?.[2] ?? HASHED_STATUS.exec(said)?.[1];
  const status = said.includes(PROBED) ? SAID_TO_PROBE.exec(said)?.[1] : enhancedCode;
  const words = wordsOf(answer);
  const failure = classOfRefusal(phase, code, status, words);
  const why = failure === 'permanent' ? reasonOf(status, words) : undefined;
  return { phase, code, enhancedCode, answer: said, failure, ...defined({ why }) };
}

/** Postfix gives the failure of each probe the status 5.1.1, and then what the host said. */
const PROBED = 'undeliverable address:';
const SAID_TO_PROBE = /said: \d{3}[ -]([45]\.\d{1,3}\.\d{1,3})\b/;
/** As qmail writes it. */
const HASHED_STATUS = /\(?#([45]\.\d{1,3}\.\d{1,3})\b/;

/** Longer ones are cut: a relay may answer without end. */
const ANSWER_READ = 1_000;

const withoutAddresses = (answer: string): string =>
  answer.slice(0, ANSWER_READ).replace(/\S+@\S+/g, '…');

/** Postfix says this before each reason, so it is none. */
const RECIPIENT_REJECTED = 'rcptrejected';
/** Stands before `User unknown`. */
const OF_CYRUS = 'or you do not have authorization to see it';
const CODES_OF_LINES = /^\d{3}[ -](?:\d\.\d{1,3}\.\d{1,3}\b)?/gm;
const HOST = /^(?:[a-z\d-]+\.)+[a-z\d-]+$|^(?:[\w-]+\.){2,}[\w-]+$/i;

/**
 * In small letters, without codes, addresses, links and names of hosts: a domain such as
 * spam.example says nothing.
 */
function wordsOf(answer: string): string {
  const tokens = answer
    .slice(0, ANSWER_READ)
    .replaceAll(CODES_OF_LINES, ' ')
    .replaceAll(/[<>"()[\]…]|\.{2,}/g, ' ')
    .split(/\s+/);
  const isName = (token: string): boolean =>
    token.includes('@') || token.includes('://') || isHost(token.replaceAll(/^'|[.,;:']+$/g, ''));
  return tokens
    .filter((token) => !isName(token))
    .join(' ')
    .toLowerCase()
    .replaceAll('recipient address rejected', RECIPIENT_REJECTED)
    .replace(OF_CYRUS, '');
}

/** What two answers have in common that differ in addresses, numbers and ids only. */
export function wordsAlike({ answer, code }: Pick<Refusal, 'answer' | 'code'>, email: string) {
  const words = wordsOf(withoutMailbox(answer, email)).split(' ');
  return [code, ...words.filter((word) => !/\d/.test(word))].join(' ');
}

/** A sentence that ends without a blank, as in `unknown.Please`, is no host. */
const isHost = (token: string): boolean =>
  HOST.test(token) && (token.split('.').length > 2 || token === token.toLowerCase());

/** By the words first; of a later bounce only the status of RFC 3463 is known. */
export function reasonOf(status = '', words = ''): MailReasonCode {
  const said = SAID.find(([pattern]) => pattern.test(words)) ?? [];
  const byStatus = STATUSES.find(([pattern]) => pattern.test(status)) ?? [];
  return said[1] ?? byStatus[1] ?? 'refused';
}

const SAID = [
  [FULL, 'mailbox_full'],
  [NO_DOMAIN, 'domain_refused'],
  [DISABLED, 'mailbox_disabled'],
  [UNKNOWN, 'unknown_mailbox'],
] as const satisfies readonly (readonly [RegExp, MailReasonCode])[];

/** Why the applicant's server refused; `classOfRefusal` says whether it did. */
const STATUSES = [
  [/^5\.1\.(?:2|10)$|^5\.4\.4$/, 'domain_refused'],
  [/^5\.1\.[01346]$/, 'unknown_mailbox'],
  [/^5\.2\.1$/, 'mailbox_disabled'],
  [/^[45]\.2\.2$/, 'mailbox_full'],
  [/^5\.7\./, 'policy'],
] as const satisfies readonly (readonly [RegExp, MailReasonCode])[];

/** Whether a later bounce, of which only the status is known, is final. */
export const isOfRecipient = (status = ''): boolean => OF_RECIPIENT.test(status);

/**
 * A wrong `permanent` loses an applicant, so status or words must speak of the recipient's mailbox
 * or domain, and nothing in them of us or of a later time. At MAIL FROM the relay does not know the
 * recipient.
 */
function classOfRefusal(
  phase: Refusal['phase'],
  code: number,
  status = '',
  words: string,
): RefusalClass {
  const aboutUs = ABOUT_US.test(words);
  const isFull = FULL.test(words);
  const sending = SENDING_LIMIT.test(words);
  const rate = sending || (!isFull && RATE.test(words));
  const overLimit = rate || (!isFull && OVER_A_LIMIT.test(words));
  const ofMailbox = /^[45]\.(?:1\.\d{1,2}|2\.\d+)$/.test(status) && status !== '5.1.90';
  const throttled =
    code === 421 || /^4\.[37]\./.test(status) || (overLimit && (sending || !ofMailbox));
  if (phase === 'mail') return throttled || code < 500 ? 'throttled' : 'relay';
  if (OVER_RECEIVED.test(status)) return 'busy';
  if (throttled && !GREYLISTED.test(words) && !(aboutUs && !overLimit)) return 'throttled';
  if (aboutUs || OF_RELAY.test(status)) return 'ours';
  if (code < 500 || status.startsWith('4.') || rate || LATER.test(words.replaceAll(ADVICE, ' ')))
    return 'busy';
  if (!MAY_BE_FINAL.test(String(code))) return 'ours';
  // "User disabled" alone may be the account that we log in with.
  const isNamed = (pattern: RegExp): boolean =>
    (pattern !== DISABLED || /^5\.[12]\./.test(status) || DISABLED_MAILBOX.test(words)) &&
    (phase !== 'content' || OF_CONTENT.test(words));
  const byWords = SAID.some(([pattern]) => pattern.test(words) && isNamed(pattern));
  // Exchange Online knows all recipients of the domain, and not this one.
  const isUnlisted = status === '5.4.1' && words.includes(RECIPIENT_REJECTED);
  return isOfRecipient(status) || byWords || isUnlisted ? 'permanent' : 'ours';
}

/** Of RFC 3463 and RFC 5248: the relay's system, the form of the message, our own account. */
const OF_RELAY = /^5\.(?:3\.[1-9]|5\.[2-9]|6\.\d|7\.(?!(?:[0-2]|17|18)$)\d+|2\.3$)/;
const DISABLED_MAILBOX =
  /mail ?box|recipient|address|you tried to reach|discontinued|^\W*account is not active/;
/** After the content, as a mere address may be one of our headers. */
const OF_CONTENT = /mail ?box|recipient|rcptrejected|\busers?\b|account|domain/;
/** Exchange: the recipient gets too much mail now. */
const OVER_RECEIVED = /^5\.2\.12[12]$/;
const GREYLISTED = /gr[ae]y-?list/;

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

export function senderOutage({ failure, code, answer }: Refusal): Outage {
  const isRefused = failure === 'relay';
  const command = isRefused ? 'MAIL FROM' : undefined;
  const error = Object.assign(new Error(`MAIL FROM failed: ${answer}`), {
    command,
    responseCode: code,
  });
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
