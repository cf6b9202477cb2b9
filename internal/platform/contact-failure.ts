/**
 * Explains to an operator in one sentence, without secrets, why a server cannot be used: where it
 * happened is the `Place`, what happened is read from the error alone.
 *
 * Example: "Redis at cache:6379: the connection is refused (ECONNREFUSED); check …".
 */
import type { Logger } from './log.ts';

export interface Place {
  readonly name: string;
  /** Host and port. */
  readonly at?: string | undefined;
  /** The setting with the address and the login. */
  readonly setting: string;
  /** What lets us in, if not user and password in `setting`. */
  readonly login?: string;
  /** What grants rights, if not the user in `setting`. */
  readonly rights?: string;
}

export type FailureKind =
  | 'name'
  | 'records'
  | 'refused'
  | 'no_route'
  | 'timeout'
  | 'closed'
  | 'no_tls'
  | 'tls_alert'
  | 'certificate'
  | 'certificate_name'
  | 'login'
  | 'rights'
  | 'sender'
  | 'no_primary'
  | 'answer'
  | 'image'
  | 'setting'
  | 'unknown';

interface Found {
  readonly kind: FailureKind;
  /** What came back: a code of the system, the server or the library, never a whole message. */
  readonly code: string | undefined;
}

const CODES: Readonly<Record<string, FailureKind>> = {
  ENOTFOUND: 'name',
  EAI_AGAIN: 'name',
  EDNS: 'name',
  ECONNREFUSED: 'refused',
  EHOSTUNREACH: 'no_route',
  ENETUNREACH: 'no_route',
  ETIMEDOUT: 'timeout',
  ECONNRESET: 'closed',
  ECONNECTION: 'closed',
  EPIPE: 'closed',
  EPROTO: 'no_tls',
  ETLS: 'no_tls',
  EAUTH: 'login',
  WRONGPASS: 'login',
  NOAUTH: 'login',
  NOPERM: 'rights',
  MOVED: 'setting',
  CROSSSLOT: 'setting',
  // These are MongoDB's Unauthorized and AuthenticationFailed, Atlas's own error, and HTTP's two.
  13: 'rights',
  18: 'login',
  8000: 'login',
  401: 'login',
  403: 'rights',
};
/** `{code}`, in brackets where one came, and `{setting}` are filled in. */
const SENTENCES: Readonly<Record<string, string>> = {
  name: 'the name is not found{code}; check the host in {setting}, and DNS',
  records:
    'the SRV or TXT record of its name cannot be used; correct it in DNS, or the host in {setting}',
  refused:
    'the connection is refused{code}; check that it runs there, and host and port in {setting}',
  no_route: 'there is no route{code}; check host and port in {setting}, and the network',
  timeout:
    'no answer in time{code}; check that it runs there, that firewalls and network policies let us through, and {setting}',
  closed:
    'it ended the connection{code}; check that it runs, and whether it wants TLS where {setting} has none',
  no_tls: 'TLS cannot be agreed on{code}; check the port and whether TLS is meant in {setting}',
  tls_alert:
    'it ends TLS{code}; check that it lets our address in (Atlas: IP access list), and its log',
  certificate:
    'its certificate is not trusted{code}; give its CA in NODE_EXTRA_CA_CERTS (chart: caBundle), or renew the certificate if it is too old',
  certificate_name:
    'its certificate is for another name{code}; use a name of the certificate in {setting}',
  login: 'it refuses the login{code}; check {login}',
  rights: 'we lack a right{code}; check {rights}',
  sender: 'it refuses our sender{code}; check MAIL_FROM, and what it lets our user send',
  no_primary: 'no member of the replica set is the primary; check the replica set, and {setting}',
  image: 'our image lacks a package{code}; remove the option that needs it from {setting}',
  setting: 'an option in it contradicts what we need{code}; check {setting}',
  answer: 'it answers with an error{code}; check its log, and {setting}',
  unknown: 'it cannot be used{code}; check the log here, and {setting}',
  // Alerts of TLS (RFC 8446 §6).
  40: 'it takes none of our TLS versions and ciphers{code}; check its TLS settings',
  70: 'it takes none of our TLS versions{code}; let it speak TLS 1.2 or newer',
  112: 'it has no certificate for the name that we use{code}; check the host in {setting}',
  116: 'it wants a certificate of ours{code}; let it take user and password, or name one in {setting}',
  // What Redis says instead of doing its work.
  MOVED: 'it is one server of a Cluster{code}; write redis+cluster:// in {setting}',
  CROSSSLOT: 'it is a Cluster{code}; write redis+cluster:// in {setting}',
  MISCONF: 'it cannot save to its disk and takes no writes{code}; make room there, see its log',
  NOREPLICAS: 'too few of its replicas are there, and it takes no writes{code}; bring them back',
  OOM: 'its memory is full, and it takes no writes{code}; raise maxmemory, or remove what else is in it',
  READONLY: 'it is a replica and takes no writes{code}; check that {setting} names the primary',
  'unknown command':
    'it lacks a command that we need{code}; use Redis 6.2 or newer without renamed commands',
};
const CERTIFICATE =
  /CERT_|_CERT|SELF_SIGNED|UNABLE_TO_(?:GET|VERIFY|DECODE)|HOSTNAME_MISMATCH|INVALID_CA|INVALID_PURPOSE/;
/** Libraries replace the system's code with their own, but the message still has it. */
const IN_MESSAGE =
  /\b(?:ENOTFOUND|EAI_AGAIN|ECONNREFUSED|EHOSTUNREACH|ENETUNREACH|ETIMEDOUT|ECONNRESET|EPROTO)\b|^(?:WRONGPASS|NOAUTH|NOPERM|MOVED|CROSSSLOT)\b|\b(?:MISCONF|NOREPLICAS|OOM|READONLY|NOPERM)\b|unknown command/;
const RECORDS =
  /Text record|text records|DNS TXT|No addresses found at host|does not share hostname/;
const WORDS: readonly (readonly [RegExp, FailureKind])[] = [
  [/does not match certificate/i, 'certificate_name'],
  [/certificate/i, 'certificate'],
  [/wrong version number|ssl routines|STARTTLS/i, 'no_tls'],
  [/without any password configured|no password is set/i, 'login'],
  [/time-?out|timed out/i, 'timeout'],
  [/closed|socket hang up|premature close/i, 'closed'],
];
/** What our own client says after it was closed; the cause came before. */
const OURS_IS_CLOSED = /^Mongo(?:TopologyClosed|ClientClosed|PoolClosed|NotConnected)Error$/;
/** Causes may be circular. */
const MAX_DEPTH = 5;

/** Returns no message, because messages may quote data. */
export function classify(thrown: unknown): Found {
  const errors = withCauses(thrown, MAX_DEPTH);
  const found = errors.map(classOf);
  const sure = found.find(({ kind }) => !['unknown', 'answer', 'timeout', 'closed'].includes(kind));
  if (sure !== undefined) return sure;
  if (errors.some(isWithoutPrimary)) return { kind: 'no_primary', code: undefined };
  // The deepest error is the original cause.
  const last = found.findLast(({ kind }) => kind !== 'unknown');
  return last ?? found[0] ?? { kind: 'unknown', code: undefined };
}

function withCauses(thrown: unknown, depth: number): Error[] {
  if (!isError(thrown) || depth === 0) return [];
  const { cause, errors, lastNodeError, reason } = thrown as Error & {
    readonly errors?: unknown;
    readonly lastNodeError?: unknown;
    readonly reason?: { readonly servers?: ReadonlyMap<string, { readonly error?: unknown }> };
  };
  const servers = reason?.servers instanceof Map ? [...reason.servers.values()] : [];
  const held = [
    cause,
    lastNodeError,
    ...(Array.isArray(errors) ? errors : []),
    ...servers.map(({ error }) => error),
  ];
  return [thrown, ...held.flatMap((error) => withCauses(error, depth - 1))];
}

/** `instanceof` fails for errors of another realm. */
function isError(thrown: unknown): thrown is Error {
  return typeof (thrown as { readonly message?: unknown } | null)?.message === 'string';
}

function classOf(error: Error): Found {
  const { message, name } = error;
  const { code, codeName, command, responseCode, statusCode, syscall } = error as {
    readonly code?: unknown;
    readonly codeName?: unknown;
    readonly command?: unknown;
    readonly responseCode?: unknown;
    readonly statusCode?: unknown;
    readonly syscall?: unknown;
  };
  const inMessage = IN_MESSAGE.exec(message)?.[0];
  const codes = [inMessage, code, statusCode]
    .filter((one) => typeof one === 'string' || typeof one === 'number')
    .map(String);
  // The reply code of a relay helps an operator most.
  const named = typeof codeName === 'string' ? `${codeName}, ${codes[0]}` : codes[0];
  const shown = typeof responseCode === 'number' ? String(responseCode) : named;
  if (command === 'MAIL FROM') return { kind: 'sender', code: shown };
  // A resolver that refuses or is silent has the codes of a server that does.
  if (/^(?:query|getaddrinfo)/.test(String(syscall))) return { kind: 'name', code: shown };
  if (RECORDS.test(message)) return { kind: 'records', code: undefined };
  const lacking =
    /module [`'"]?([\w@/.-]+)[`'"]? not found|find (?:module|package) '([^']+)'/i.exec(message);
  if (lacking !== null) return { kind: 'image', code: lacking[1] ?? lacking[2] };
  const alert = /SSL alert number (\d+)/.exec(message)?.[1];
  if (alert !== undefined) return { kind: 'tls_alert', code: alert };
  const certificate = codes.find((one) => CERTIFICATE.test(one));
  if (certificate !== undefined) {
    const kind = /ALTNAME|HOSTNAME/.test(certificate) ? 'certificate_name' : 'certificate';
    return { kind, code: certificate };
  }
  const byWord = WORDS.find(([pattern]) => pattern.test(message))?.[1];
  if (byWord !== undefined && ['certificate', 'certificate_name', 'no_tls'].includes(byWord))
    return { kind: byWord, code: shown };
  const known = codes.find((one) => Object.hasOwn(CODES, one));
  if (known !== undefined) return { kind: CODES[known]!, code: known === 'EAUTH' ? shown : known };
  if (codes.some((one) => /^ERR_(?:SSL|TLS)_/.test(one))) return { kind: 'no_tls', code: shown };
  if (/Timeout|AbortError|DeadlineError/.test(name)) return { kind: 'timeout', code: shown };
  if (byWord !== undefined) return { kind: byWord, code: shown };
  if (/^Mongo(?:Parse|InvalidArgument|MissingCredentials)Error$/.test(name))
    return { kind: 'setting', code: undefined };
  const answered = /^(?:ReplyError|MongoServerError|MongoWriteConcernError)$/.test(name);
  const isAnswer = answered || [responseCode, statusCode].some((one) => typeof one === 'number');
  if (isAnswer) return { kind: 'answer', code: shown };
  return { kind: 'unknown', code: shown ?? (name === 'Error' ? undefined : name) };
}

function isWithoutPrimary(error: Error): boolean {
  const { reason } = error as { readonly reason?: { readonly type?: unknown } };
  return String(reason?.type) === 'ReplicaSetNoPrimary';
}

/** The last cause at each place. */
const causes = new Map<string, Found>();

export function contactReason(place: Place, thrown: unknown): string {
  const { name, at, setting } = place;
  const where = at === undefined ? name : `${name} at ${at}`;
  const isOurs = isError(thrown) && OURS_IS_CLOSED.test(thrown.name);
  const found = (isOurs ? causes.get(where) : undefined) ?? classify(thrown);
  if (!isOurs) causes.set(where, found);
  const { kind, code = '' } = found;
  const own = Object.hasOwn(SENTENCES, code) && ['tls_alert', 'answer', 'setting'].includes(kind);
  const sentence = SENTENCES[own ? code : kind]!;
  const words: Readonly<Record<string, string>> = {
    code: code === '' ? '' : ` (${kind === 'tls_alert' ? `alert ${code}` : code})`,
    setting,
    login: place.login ?? `user and password in ${setting}`,
    rights: place.rights ?? `user and rights in ${setting}`,
  };
  return `${where}: ${sentence.replaceAll(/\{(\w+)\}/g, (_, word: string) => words[word] ?? '')}`;
}

/** Whether the server is there and says no. */
const SAYS_NO: readonly FailureKind[] = ['login', 'rights', 'sender', 'setting', 'answer'];

/** The current state of a place for `/readyz`, logged when it changes. */
export class Contact {
  readonly #place: Place;
  readonly #log: Logger;
  #fault: string | undefined;
  /** Reasons may alternate during an outage; each is logged once. */
  readonly #logged = new Set<string>();

  constructor(place: Place, log: Logger) {
    this.#place = place;
    this.#log = log;
  }

  /** Empty when the server can be used or was not tried yet. */
  readonly warnings = (): readonly string[] => (this.#fault === undefined ? [] : [this.#fault]);

  failed(error: unknown): void {
    const { name } = this.#place;
    const reason = contactReason(this.#place, error);
    this.#fault = reason;
    if (this.#logged.has(reason)) return;
    this.#logged.add(reason);
    const saysNo = SAYS_NO.includes(classify(error).kind);
    this.#log.warn({ err: error, reason }, `${name} ${saysNo ? 'refuses us' : 'is away'}`);
  }

  ok(): void {
    if (this.#fault === undefined) return;
    this.#fault = undefined;
    this.#logged.clear();
    this.#log.info(`${this.#place.name} is back`);
  }
}
