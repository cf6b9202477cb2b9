/**
 * The words of servers and libraries, and what each means. Only here and in
 * `mail/relay-answers.ts` the prose of others is matched.
 */

/**
 * `signsOf` writes an error as lines such as `code=EAUTH`. If one matches `signs`, `sentence` is
 * shown; `{code}` becomes the captured text, or else the error's code, in parentheses.
 */
type Causes = Readonly<Record<string, readonly [signs: RegExp, sentence: string]>>;

/** The server answers, but refuses us. */
const REFUSALS = {
  // RFC 4954 §6: the answer to any command.
  login_first: [/^responseCode=(530)$/m, 'it wants us to log in first{code}; check {login}'],
  sender_refused: [
    /^command=MAIL FROM$/m,
    'it refuses our sender{code}; check MAIL_FROM, and what it lets our user send',
  ],
  login_refused: [
    // 18 is MongoDB's AuthenticationFailed, and 8000 Atlas's own error.
    /^code=(?:EAUTH|(18|8000|401))$|^statusCode=(401)$|^message=(WRONGPASS|NOAUTH)\b|without any password configured|no password is set/m,
    'it refuses the login{code}; check {login}',
  ],
  right_missing: [
    // 13 is MongoDB's Unauthorized.
    /^code=(13|403)$|^statusCode=(403)$|\b(NOPERM)\b/m,
    'we lack a right{code}; check {rights}',
  ],
  not_a_cluster: [
    /cluster (support disabled)/,
    'it is no Cluster{code}; write redis:// in {setting}',
  ],
  is_a_cluster: [
    /^message=(MOVED)\b/m,
    'it is one server of a Cluster{code}; write redis+cluster:// in {setting}',
  ],
  crosses_slots: [
    /^message=(CROSSSLOT)\b/m,
    'it is a Cluster{code}; write redis+cluster:// in {setting}',
  ],
  disk_fails: [
    /\b(MISCONF)\b/,
    'it cannot save to its disk and takes no writes{code}; make room there, see its log',
  ],
  replicas_missing: [
    /\b(NOREPLICAS)\b/,
    'too few of its replicas are there, and it takes no writes{code}; bring them back',
  ],
  memory_full: [
    /\b(OOM)\b/,
    'its memory is full, and it takes no writes{code}; raise maxmemory, or remove what else is in it',
  ],
  is_a_replica: [
    /\b(READONLY)\b/,
    'it is a replica and takes no writes{code}; check that {setting} names the primary',
  ],
  command_missing: [
    /^message=ERR (unknown command)/m,
    'it lacks a command that we need{code}; use Redis 6.2 or newer without renamed commands',
  ],
} as const satisfies Causes;
const ABSENCES = {
  name_not_found: [
    // A failing resolver has a failing server's codes, but another system call.
    /^syscall=(?:query|getaddrinfo)|(ENOTFOUND|EAI_AGAIN|EDNS)/m,
    'the name is not found{code}; check the host in {setting}, and DNS',
  ],
  name_record: [
    /Text record|text records|DNS TXT|No addresses found at host|does not share hostname/,
    'the SRV or TXT record of its name cannot be used; correct it in DNS, or the host in {setting}',
  ],
  package_missing: [
    /module [`'"]?([\w@/.-]+)[`'"]? not found|find (?:module|package) '([^']+)'/i,
    'our image lacks a package{code}; remove the option that needs it from {setting}',
  ],
  // Alerts of TLS (RFC 8446 §6).
  tls_settings: [
    /SSL (alert) number (40)\b/,
    'it takes none of our TLS versions and ciphers{code}; check its TLS settings',
  ],
  tls_version: [
    /SSL (alert) number (70)\b/,
    'it takes none of our TLS versions{code}; let it speak TLS 1.2 or newer',
  ],
  tls_name: [
    /SSL (alert) number (112)\b/,
    'it has no certificate for the name that we use{code}; check the host in {setting}',
  ],
  certificate_wanted: [
    /SSL (alert) number (116)\b/,
    'it wants a certificate of ours{code}; name one in {certificate}, or let it take user and password',
  ],
  tls_ended: [
    /SSL (alert) number (\d+)/,
    'it ends TLS{code}; check that it lets our address in (Atlas: IP access list), and its log',
  ],
  certificate_name: [
    /^code=(\w*ALTNAME\w*|HOSTNAME_MISMATCH)|does not match certificate/im,
    'its certificate is for another name{code}; use a name of the certificate in {setting}',
  ],
  certificate_untrusted: [
    /^code=(\w*(?:CERT_|_CERT|SELF_SIGNED|UNABLE_TO_(?:GET|VERIFY|DECODE)|INVALID_CA|INVALID_PURPOSE)\w*)|certificate/im,
    'its certificate is not trusted{code}; give its CA in NODE_EXTRA_CA_CERTS (chart: caBundle), or renew the certificate if it is too old',
  ],
  tls_disagrees: [
    /\b(EPROTO|ETLS)\b|wrong version number|ssl routines|STARTTLS|^code=ERR_(?:SSL|TLS)_/im,
    'TLS cannot be agreed on{code}; check the port and whether TLS is meant in {setting}',
  ],
  connection_refused: [
    /(ECONNREFUSED)/,
    'the connection is refused{code}; check that it runs there, and host and port in {setting}',
  ],
  no_route: [
    /(EHOSTUNREACH|ENETUNREACH)/,
    'there is no route{code}; check host and port in {setting}, and the network',
  ],
  option_faulty: [
    /^name=Mongo(?:Parse|InvalidArgument|MissingCredentials)Error$/m,
    'an option in it contradicts what we need{code}; check {setting}',
  ],
} as const satisfies Causes;
const NO_PRIMARY = {
  no_primary: [
    /^reason=ReplicaSetNoPrimary$/m,
    'no member of the replica set is the primary; check the replica set, and {setting}',
  ],
} as const satisfies Causes;
/** Failures that may follow from another cause, which then counts more. */
const VAGUE = {
  no_answer: [
    /(ETIMEDOUT)|^name=\w*(?:Timeout|AbortError|DeadlineError)|time-?out|timed out/im,
    'no answer in time{code}; check that it runs there, that firewalls and network policies let us through, and {setting}',
  ],
  connection_ended: [
    /(ECONNRESET|ECONNECTION|EPIPE)|^name=ConnectionEndedError$|closed|socket hang up|premature close/im,
    'it ended the connection{code}; check that it runs{tls}',
  ],
  error_answered: [
    /^name=(?:ReplyError|MongoServerError|MongoWriteConcernError)$|^(?:responseCode|statusCode)=\d/m,
    'it answers with an error{code}; check its log, and {setting}',
  ],
} as const satisfies Causes;
const UNKNOWN = 'it cannot be used{code}; check the log here, and {setting}';
/** Errors of our own client after it was closed; the cause came earlier. */
const OURS_IS_CLOSED = /^Mongo(?:TopologyClosed|ClientClosed|PoolClosed|NotConnected)Error$/;
/** Causes may be circular. */
const MAX_DEPTH = 5;

/** Why a server cannot be used. */
export type ServerCode =
  keyof (typeof REFUSALS & typeof ABSENCES & typeof NO_PRIMARY & typeof VAGUE) | 'unusable';

export interface ServerFailure {
  readonly code: ServerCode;
  readonly sentence: string;
  /** A code of the system, the server or the library, never a whole message. */
  readonly told: string | undefined;
}

type ErrorFields = Readonly<Record<string, unknown>>;

export const isOfOurClosedClient = (thrown: unknown): boolean =>
  OURS_IS_CLOSED.test(String((thrown as ErrorFields | undefined)?.['name']));

/** Whether the error tells why a server cannot be used. */
export const isContactFailure = (thrown: unknown): boolean => failureOf(thrown).code !== 'unusable';

/** Whether another failure may be its cause. */
export const isVague = ({ code }: ServerFailure): boolean => code in VAGUE;

/** Whether the server answers, and refuses us. */
export const saysNo = ({ code }: ServerFailure): boolean =>
  code === 'error_answered' || code in REFUSALS;

/** Never throws, whatever was thrown. */
export function failureOf(thrown: unknown): ServerFailure {
  const errors = withCauses(thrown, MAX_DEPTH);
  const { name } = errors[0] ?? {};
  return (
    firstOf({ ...REFUSALS, ...ABSENCES }, errors) ??
    firstOf(NO_PRIMARY, errors) ??
    // The deepest error is the original cause.
    firstOf(VAGUE, errors.toReversed()) ?? {
      code: 'unusable',
      sentence: UNKNOWN,
      told: codeOf(errors[0] ?? {}) ?? (name === 'Error' ? undefined : (name as string)),
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
function firstOf(causes: Causes, errors: readonly ErrorFields[]): ServerFailure | undefined {
  for (const error of errors) {
    const signs = signsOf(error);
    for (const [code, [pattern, sentence]] of Object.entries(causes)) {
      const [match, ...captured] = pattern.exec(signs) ?? [];
      if (match === undefined) continue;
      const told = captured.filter(Boolean).join(' ') || codeOf(error);
      return { code: code as ServerCode, sentence, told };
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

/** A server ended the connection, which the library does not call an error. */
export class ConnectionEndedError extends Error {
  override readonly name = 'ConnectionEndedError';
}

/* Of Redis. */

/** The library sends such a script again, whole. */
export const lacksScript = ({ message }: Error): boolean => message.startsWith('NOSCRIPT');

/** Another node of the Cluster has the key. */
export const isElsewhere = ({ message }: Error): boolean => /^(?:MOVED|ASK) /.test(message);

export const isReplica = ({ message }: Error): boolean => message.includes('READONLY');

/* Of MongoDB and FerretDB. */

export const isDeadlock = (errmsg: unknown): boolean => String(errmsg).includes('deadlock');

/** Those of our `names` that the message has. */
export const namedIn = (message: string, names: readonly string[]): string[] =>
  names.filter((name) => new RegExp(`\\b${name}\\b`).test(message));
