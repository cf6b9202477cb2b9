/**
 * Explains to an operator in one sentence, without secrets, why a server cannot be used: the
 * `Place` says where, the error alone says what.
 *
 * Example: "Redis at cache:6379: the connection is refused (ECONNREFUSED); check …".
 */
import type { Logger } from './log.ts';

interface Place {
  readonly name: string;
  /** Host and port. */
  readonly at?: string | undefined;
  /** The setting with the address and the login. */
  readonly setting: string;
  /** Our credentials, if not user and password in `setting`. */
  readonly login?: string;
  /** What grants rights, if not the user in `setting`. */
  readonly rights?: string;
  /** The setting that names our certificate, if not `setting`. */
  readonly certificate?: string;
  /** Whether `setting` asks for TLS, where it is known. */
  readonly tls?: boolean;
}

/**
 * `signsOf` writes an error as lines such as `code=EAUTH`. If one matches `signs`, `sentence` is
 * shown; `{code}` becomes the captured text, or else the error's code, in parentheses.
 */
type Cause = readonly [signs: RegExp, sentence: string];

/** The server answers, but refuses us. */
const REFUSALS: readonly Cause[] = [
  // RFC 4954 §6: the answer to any command.
  [/^responseCode=(530)$/m, 'it wants us to log in first{code}; check {login}'],
  [
    /^command=MAIL FROM$/m,
    'it refuses our sender{code}; check MAIL_FROM, and what it lets our user send',
  ],
  [
    // 18 is MongoDB's AuthenticationFailed, and 8000 Atlas's own error.
    /^code=(?:EAUTH|(18|8000|401))$|^statusCode=(401)$|^message=(WRONGPASS|NOAUTH)\b|without any password configured|no password is set/m,
    'it refuses the login{code}; check {login}',
  ],
  [
    // 13 is MongoDB's Unauthorized.
    /^code=(13|403)$|^statusCode=(403)$|\b(NOPERM)\b/m,
    'we lack a right{code}; check {rights}',
  ],
  [/cluster (support disabled)/, 'it is no Cluster{code}; write redis:// in {setting}'],
  [
    /^message=(MOVED)\b/m,
    'it is one server of a Cluster{code}; write redis+cluster:// in {setting}',
  ],
  [/^message=(CROSSSLOT)\b/m, 'it is a Cluster{code}; write redis+cluster:// in {setting}'],
  [
    /\b(MISCONF)\b/,
    'it cannot save to its disk and takes no writes{code}; make room there, see its log',
  ],
  [
    /\b(NOREPLICAS)\b/,
    'too few of its replicas are there, and it takes no writes{code}; bring them back',
  ],
  [
    /\b(OOM)\b/,
    'its memory is full, and it takes no writes{code}; raise maxmemory, or remove what else is in it',
  ],
  [
    /\b(READONLY)\b/,
    'it is a replica and takes no writes{code}; check that {setting} names the primary',
  ],
  [
    /^message=ERR (unknown command)/m,
    'it lacks a command that we need{code}; use Redis 6.2 or newer without renamed commands',
  ],
];
const ABSENCES: readonly Cause[] = [
  [
    // A failing resolver has a failing server's codes, but another system call.
    /^syscall=(?:query|getaddrinfo)|(ENOTFOUND|EAI_AGAIN|EDNS)/m,
    'the name is not found{code}; check the host in {setting}, and DNS',
  ],
  [
    /Text record|text records|DNS TXT|No addresses found at host|does not share hostname/,
    'the SRV or TXT record of its name cannot be used; correct it in DNS, or the host in {setting}',
  ],
  [
    /module [`'"]?([\w@/.-]+)[`'"]? not found|find (?:module|package) '([^']+)'/i,
    'our image lacks a package{code}; remove the option that needs it from {setting}',
  ],
  // Alerts of TLS (RFC 8446 §6).
  [
    /SSL (alert) number (40)\b/,
    'it takes none of our TLS versions and ciphers{code}; check its TLS settings',
  ],
  [
    /SSL (alert) number (70)\b/,
    'it takes none of our TLS versions{code}; let it speak TLS 1.2 or newer',
  ],
  [
    /SSL (alert) number (112)\b/,
    'it has no certificate for the name that we use{code}; check the host in {setting}',
  ],
  [
    /SSL (alert) number (116)\b/,
    'it wants a certificate of ours{code}; name one in {certificate}, or let it take user and password',
  ],
  [
    /SSL (alert) number (\d+)/,
    'it ends TLS{code}; check that it lets our address in (Atlas: IP access list), and its log',
  ],
  [
    /^code=(\w*ALTNAME\w*|HOSTNAME_MISMATCH)|does not match certificate/im,
    'its certificate is for another name{code}; use a name of the certificate in {setting}',
  ],
  [
    /^code=(\w*(?:CERT_|_CERT|SELF_SIGNED|UNABLE_TO_(?:GET|VERIFY|DECODE)|INVALID_CA|INVALID_PURPOSE)\w*)|certificate/im,
    'its certificate is not trusted{code}; give its CA in NODE_EXTRA_CA_CERTS (chart: caBundle), or renew the certificate if it is too old',
  ],
  [
    /\b(EPROTO|ETLS)\b|wrong version number|ssl routines|STARTTLS|^code=ERR_(?:SSL|TLS)_/im,
    'TLS cannot be agreed on{code}; check the port and whether TLS is meant in {setting}',
  ],
  [
    /(ECONNREFUSED)/,
    'the connection is refused{code}; check that it runs there, and host and port in {setting}',
  ],
  [
    /(EHOSTUNREACH|ENETUNREACH)/,
    'there is no route{code}; check host and port in {setting}, and the network',
  ],
  [
    /^name=Mongo(?:Parse|InvalidArgument|MissingCredentials)Error$/m,
    'an option in it contradicts what we need{code}; check {setting}',
  ],
];
const ANSWER = 'it answers with an error{code}; check its log, and {setting}';
/** Failures that may follow from another cause, which then counts more. */
const VAGUE: readonly Cause[] = [
  [
    /(ETIMEDOUT)|^name=\w*(?:Timeout|AbortError|DeadlineError)|time-?out|timed out/im,
    'no answer in time{code}; check that it runs there, that firewalls and network policies let us through, and {setting}',
  ],
  [
    /(ECONNRESET|ECONNECTION|EPIPE)|closed|socket hang up|premature close/i,
    'it ended the connection{code}; check that it runs{tls}',
  ],
  [
    /^name=(?:ReplyError|MongoServerError|MongoWriteConcernError)$|^(?:responseCode|statusCode)=\d/m,
    ANSWER,
  ],
];
const NO_PRIMARY: Cause = [
  /^reason=ReplicaSetNoPrimary$/m,
  'no member of the replica set is the primary; check the replica set, and {setting}',
];
/** For this long, a vague failure does not replace a clear one. */
const TOLD_MS = 10_000;
const UNKNOWN = 'it cannot be used{code}; check the log here, and {setting}';
/** Errors of our own client after it was closed; the cause came earlier. */
const OURS_IS_CLOSED = /^Mongo(?:TopologyClosed|ClientClosed|PoolClosed|NotConnected)Error$/;
/** Causes may be circular. */
const MAX_DEPTH = 5;

type ErrorFields = Readonly<Record<string, unknown>>;

interface KnownFailure {
  readonly sentence: string;
  /** A code of the system, the server or the library, never a whole message. */
  readonly code: string | undefined;
}

/** Whether a sentence of `contactReason` says that credentials or certificates are refused. */
export function isAccessFault(reason: string): boolean {
  return /: (?:it refuses the login|we lack a right|it wants a certificate of ours|it ends TLS|its certificate is not trusted)/.test(
    reason,
  );
}

/**
 * Whether a server may refuse our credentials so: some end the connection, or answer nothing, where
 * others send an alert of TLS.
 */
export function mayBeAccessFault(reason: string): boolean {
  return /: (?:it ended the connection|no answer in time|TLS cannot be agreed on|no member of the replica set)/.test(
    reason,
  );
}

/** Whether the error tells why a server cannot be used. */
export function isContactFailure(thrown: unknown): boolean {
  return foundIn(thrown).sentence !== UNKNOWN;
}

function foundIn(thrown: unknown): KnownFailure {
  const errors = withCauses(thrown, MAX_DEPTH);
  const { name } = errors[0] ?? {};
  return (
    firstOf([...REFUSALS, ...ABSENCES], errors) ??
    firstOf([NO_PRIMARY], errors) ??
    // The deepest error is the original cause.
    firstOf(VAGUE, errors.toReversed()) ?? {
      sentence: UNKNOWN,
      code: codeOf(errors[0] ?? {}) ?? (name === 'Error' ? undefined : (name as string)),
    }
  );
}

function withCauses(thrown: unknown, depth: number): ErrorFields[] {
  const error = (thrown ?? {}) as ErrorFields;
  // `instanceof` fails for errors of another realm.
  if (typeof error['message'] !== 'string' || depth === 0) return [];
  const { cause, errors, lastNodeError, reason } = error;
  const { servers } = (reason ?? {}) as ErrorFields;
  const ofServers =
    servers instanceof Map ? [...(servers as Map<string, ErrorFields>).values()] : [];
  const held = [
    cause,
    lastNodeError,
    ...(Array.isArray(errors) ? (errors as unknown[]) : []),
    ...ofServers.map((server) => server['error']),
  ];
  return [error, ...held.flatMap((one) => withCauses(one, depth - 1))];
}

/** The first error that has signs of one of the causes. */
function firstOf(
  causes: readonly Cause[],
  errors: readonly ErrorFields[],
): KnownFailure | undefined {
  for (const error of errors) {
    const signs = signsOf(error);
    for (const [pattern, sentence] of causes) {
      const [match, ...told] = pattern.exec(signs) ?? [];
      if (match !== undefined)
        return { sentence, code: told.filter(Boolean).join(' ') || codeOf(error) };
    }
  }
  return undefined;
}

function signsOf(error: ErrorFields): string {
  const { command, syscall, code, statusCode, responseCode, name, message } = error;
  const reason = (error['reason'] as ErrorFields | undefined)?.['type'];
  // The first match counts: a code tells more than the system call.
  const signs = { command, code, statusCode, responseCode, name, reason, message, syscall };
  return Object.entries(signs)
    .map(([sign, value]) => `${sign}=${String(value)}`)
    .join('\n');
}

/** A relay's reply code helps an operator most. */
function codeOf({ responseCode, codeName, code, statusCode }: ErrorFields): string | undefined {
  const told = responseCode ?? code ?? statusCode;
  if (typeof told !== 'string' && typeof told !== 'number') return undefined;
  return typeof codeName === 'string' ? `${codeName}, ${told}` : String(told);
}

/** The last cause at each place. */
const causes = new Map<string, KnownFailure>();

export function contactReason(place: Place, thrown: unknown): string {
  const { name, at, setting } = place;
  const where = at === undefined ? name : `${name} at ${at}`;
  const isOurs = OURS_IS_CLOSED.test(String((thrown as ErrorFields | undefined)?.['name']));
  const found = (isOurs ? causes.get(where) : undefined) ?? foundIn(thrown);
  if (!isOurs) causes.set(where, found);
  const { sentence, code } = found;
  const words: Readonly<Record<string, string>> = {
    code: code === undefined ? '' : ` (${code})`,
    setting,
    login: place.login ?? `user and password in ${setting}`,
    rights: place.rights ?? `user and rights in ${setting}`,
    certificate: place.certificate ?? setting,
    tls: place.tls ? '' : `, and whether it wants TLS where ${setting} has none`,
  };
  return `${where}: ${sentence.replaceAll(/\{(\w+)\}/g, (_, word: string) => words[word] ?? '')}`;
}

interface OutageLines {
  readonly failing: Set<Contact>;
  /** "is away" and "refuses us" may alternate; each is logged once. */
  readonly logged: Set<string>;
}

/** By place: all clients of a process share its log. */
const outages = new WeakMap<Logger, Map<string, OutageLines>>();

function outageAt({ name, at = '' }: Place, log: Logger): OutageLines {
  const ofProcess = outages.get(log) ?? new Map<string, OutageLines>();
  outages.set(log, ofProcess);
  const where = `${name} ${at}`;
  const outage = ofProcess.get(where) ?? { failing: new Set(), logged: new Set() };
  ofProcess.set(where, outage);
  return outage;
}

/**
 * The current state of a place for `/readyz`. A process logs when the state changes for the first
 * of its clients, and when all of them are well again.
 */
export class Contact {
  readonly #place: Place;
  readonly #log: Logger;
  readonly #outage: OutageLines;
  #fault: string | undefined;
  #toldAtMs = -Infinity;

  constructor(place: Place, log: Logger) {
    this.#place = place;
    this.#log = log;
    this.#outage = outageAt(place, log);
  }

  /** Empty when the server can be used or was not tried yet. */
  readonly warnings = (): readonly string[] => (this.#fault === undefined ? [] : [this.#fault]);

  failed(error: unknown): void {
    const { name } = this.#place;
    const { sentence } = foundIn(error);
    const isVague = VAGUE.some(([, vague]) => vague === sentence);
    // The end of the connection often follows from the cause that was told just before.
    if (isVague && this.#fault !== undefined && performance.now() - this.#toldAtMs < TOLD_MS)
      return;
    const reason = contactReason(this.#place, error);
    this.#fault = reason;
    if (!isVague) this.#toldAtMs = performance.now();
    const { failing, logged } = this.#outage;
    failing.add(this);
    const saysNo = sentence === ANSWER || REFUSALS.some(([, refusal]) => refusal === sentence);
    const state = saysNo ? 'refuses us' : 'is away';
    if (logged.has(state)) return;
    logged.add(state);
    this.#log.warn({ err: error, reason }, `${name} ${state}`);
  }

  ok(): void {
    if (this.#fault === undefined) return;
    if (this.#end()) this.#log.info(`${this.#place.name} is back`);
  }

  /** The client was closed. */
  closed(): void {
    this.#end();
  }

  /** Whether this was the last client that failed. */
  #end(): boolean {
    const { failing, logged } = this.#outage;
    this.#fault = undefined;
    const wasLast = failing.delete(this) && failing.size === 0;
    if (wasLast) logged.clear();
    return wasLast;
  }
}
