/**
 * Explains to an operator in one sentence, without secrets, why a server cannot be used.
 *
 * Example: "Redis at cache:6379: the connection is refused (ECONNREFUSED); check …".
 */
import type { Logger } from './log.ts';

export interface Server {
  readonly name: string;
  /** Host and port. */
  readonly at?: string | undefined;
  /** The setting with the address and the login. */
  readonly setting: string;
  /** What grants rights, if not the user in `setting`. */
  readonly rights?: string;
}

export type ContactFailure =
  | 'name'
  | 'refused'
  | 'no_route'
  | 'timeout'
  | 'closed'
  | 'no_tls'
  | 'certificate'
  | 'login'
  | 'rights'
  | 'no_primary'
  | 'other';

const CODES: Readonly<Record<string, ContactFailure>> = {
  ENOTFOUND: 'name',
  EAI_AGAIN: 'name',
  ENODATA: 'name',
  ESERVFAIL: 'name',
  EDNS: 'name',
  ECONNREFUSED: 'refused',
  EHOSTUNREACH: 'no_route',
  ENETUNREACH: 'no_route',
  ETIMEDOUT: 'timeout',
  ETIMEOUT: 'timeout',
  ECONNRESET: 'closed',
  ECONNECTION: 'closed',
  EPIPE: 'closed',
  EPROTO: 'no_tls',
  ETLS: 'no_tls',
  EAUTH: 'login',
  WRONGPASS: 'login',
  NOAUTH: 'login',
  NOPERM: 'rights',
  // These are MongoDB's Unauthorized and AuthenticationFailed, Atlas's own error, and HTTP's two.
  13: 'rights',
  18: 'login',
  8000: 'login',
  401: 'login',
  403: 'rights',
};
const CERTIFICATE =
  /CERT|SELF_SIGNED|UNABLE_TO_(?:GET|VERIFY|DECODE)|HOSTNAME_MISMATCH|INVALID_CA|INVALID_PURPOSE/;
/** Libraries replace the system's code with their own, but the message still has it. */
const IN_MESSAGE =
  /\b(?:ENOTFOUND|EAI_AGAIN|ECONNREFUSED|EHOSTUNREACH|ENETUNREACH|ETIMEDOUT|ECONNRESET|EPROTO)\b|^(?:WRONGPASS|NOAUTH|NOPERM)\b/;
const WORDS: readonly (readonly [RegExp, ContactFailure])[] = [
  [/certificate/i, 'certificate'],
  [/wrong version number|ssl routines|STARTTLS/i, 'no_tls'],
  [/without any password configured|no password is set/i, 'login'],
  [/time-?out|timed out/i, 'timeout'],
  [/closed|socket hang up|premature close/i, 'closed'],
];
/** Causes may be circular. */
const MAX_DEPTH = 5;

interface Found {
  readonly kind: ContactFailure;
  readonly code: string | undefined;
}

/** Returns no message, because messages may quote data. */
export function classify(thrown: unknown): Found {
  const errors = withCauses(thrown, MAX_DEPTH);
  const found = errors.map(classOf);
  const sure = found.find(({ kind }) => !['other', 'timeout', 'closed'].includes(kind));
  if (sure !== undefined) return sure;
  if (errors.some(isWithoutPrimary)) return { kind: 'no_primary', code: undefined };
  // The deepest error is the original cause.
  const last = found.findLast(({ kind }) => kind !== 'other');
  return last ?? found[0] ?? { kind: 'other', code: undefined };
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
  const { code, codeName, responseCode, statusCode } = error as {
    readonly code?: unknown;
    readonly codeName?: unknown;
    readonly responseCode?: unknown;
    readonly statusCode?: unknown;
  };
  const inMessage = IN_MESSAGE.exec(error.message)?.[0];
  const codes = [inMessage, code, statusCode]
    .filter((one) => typeof one === 'string' || typeof one === 'number')
    .map(String);
  // The reply code of a relay helps an operator most.
  const named = typeof codeName === 'string' ? `${codeName}, ${codes[0]}` : codes[0];
  const shown = typeof responseCode === 'number' ? String(responseCode) : named;
  const certificate = codes.find((one) => CERTIFICATE.test(one));
  if (certificate !== undefined) return { kind: 'certificate', code: certificate };
  const byWord = WORDS.find(([pattern]) => pattern.test(error.message))?.[1];
  if (byWord === 'certificate' || byWord === 'no_tls') return { kind: byWord, code: shown };
  const known = codes.find((one) => Object.hasOwn(CODES, one));
  if (known !== undefined) return { kind: CODES[known]!, code: known === 'EAUTH' ? shown : known };
  if (codes.some((one) => /^ERR_(?:SSL|TLS)_/.test(one))) return { kind: 'no_tls', code: shown };
  if (/Timeout|AbortError|DeadlineError/.test(error.name)) return { kind: 'timeout', code: shown };
  return { kind: byWord ?? 'other', code: shown };
}

function isWithoutPrimary(error: Error): boolean {
  const { reason } = error as { readonly reason?: { readonly type?: unknown } };
  return String(reason?.type) === 'ReplicaSetNoPrimary';
}

export function contactReason(server: Server, thrown: unknown): string {
  const { kind, code } = classify(thrown);
  const { name, at, setting, rights } = server;
  const where = at === undefined ? name : `${name} at ${at}`;
  const what = code === undefined ? '' : ` (${code})`;
  switch (kind) {
    case 'name':
      return `${where}: the name is not found${what}; check the host in ${setting}, and DNS`;
    case 'refused':
      return `${where}: the connection is refused${what}; check that it runs there, and host and port in ${setting}`;
    case 'no_route':
      return `${where}: there is no route${what}; check host and port in ${setting}, and the network`;
    case 'timeout':
      return `${where}: no answer in time${what}; check that it runs there, that firewalls and network policies let us through, and ${setting}`;
    case 'closed':
      return `${where}: it ended the connection${what}; check that it runs, and whether it wants TLS where ${setting} has none`;
    case 'no_tls':
      return `${where}: TLS cannot be agreed on${what}; check the port and whether TLS is meant in ${setting}`;
    case 'certificate':
      return code?.includes('ALTNAME') === true
        ? `${where}: its certificate is for another name${what}; use a name of the certificate in ${setting}`
        : `${where}: its certificate is not trusted${what}; give its CA in NODE_EXTRA_CA_CERTS (chart: caBundle), or renew the certificate if it is too old`;
    case 'login':
      return `${where}: it refuses the login${what}; check user and password in ${setting}`;
    case 'rights':
      return `${where}: we lack a right${what}; check ${rights ?? `user and rights in ${setting}`}`;
    case 'no_primary':
      return `${where}: no member of the replica set is the primary; check the replica set, and ${setting}`;
    case 'other':
      return `${where}: it answers with an error${what}; check its log, and ${setting}`;
  }
}

/** The current state of a server for `/readyz`, logged when it changes. */
export class Contact {
  readonly #server: Server;
  readonly #log: Logger;
  #fault: string | undefined;
  /** Reasons may alternate during an outage; each is logged once. */
  readonly #logged = new Set<string>();

  constructor(server: Server, log: Logger) {
    this.#server = server;
    this.#log = log;
  }

  /** Empty when the server can be used or was not tried yet. */
  readonly warnings = (): readonly string[] => (this.#fault === undefined ? [] : [this.#fault]);

  failed(error: unknown): void {
    const reason = contactReason(this.#server, error);
    this.#fault = reason;
    if (this.#logged.has(reason)) return;
    this.#logged.add(reason);
    this.#log.warn({ err: error, reason }, `${this.#server.name} is away`);
  }

  ok(): void {
    if (this.#fault === undefined) return;
    this.#fault = undefined;
    this.#logged.clear();
    this.#log.info(`${this.#server.name} is back`);
  }
}
