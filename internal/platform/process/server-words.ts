/**
 * The words of servers and libraries, and what each means. Only here, in `server-causes.ts` and in
 * `mail/relay-answers.ts` the prose of others is matched.
 */
import { defined } from './defined.ts';
import {
  ABSENCES,
  FOUND,
  NO_PRIMARY,
  REFUSALS,
  UNKNOWN,
  VAGUE,
  type Causes,
} from './server-causes.ts';

/** Errors of our own client after it was closed; the cause came earlier. */
const OURS_IS_CLOSED = /^Mongo(?:TopologyClosed|ClientClosed|PoolClosed|NotConnected)Error$/;
/** Causes may be circular. */
const MAX_DEPTH = 5;

/** Why a server cannot be used. */
export type ServerCode =
  | keyof (typeof REFUSALS & typeof ABSENCES & typeof NO_PRIMARY & typeof VAGUE & typeof FOUND)
  | 'unusable';

export interface ServerFailure {
  readonly code: ServerCode;
  readonly sentence: string;
  /** A code of the system, the server or the library, never a whole message. */
  readonly told: string | undefined;
  /** Of the sentence. */
  readonly parts: Readonly<Record<string, string>>;
  /** The servers that failed so, where the error says it. */
  readonly at: readonly string[];
}

/** A failure that our client found without an error that says it. */
export const knownFailure = (
  code: keyof typeof FOUND,
  parts: Readonly<Record<string, string>>,
  ...at: readonly string[]
): ServerFailure => ({ code, sentence: FOUND[code], told: undefined, parts, at });

type ErrorFields = Readonly<Record<string, unknown>>;

export const isOfOurClosedClient = (thrown: unknown): boolean =>
  OURS_IS_CLOSED.test(String((thrown as ErrorFields | undefined)?.['name']));

/** Whether the error tells why a server cannot be used. */
export const isContactFailure = (thrown: unknown): boolean => failureOf(thrown).code !== 'unusable';

/** Whether another failure may be its cause. */
export const isVague = ({ code }: ServerFailure): boolean => code in VAGUE || code === 'unusable';

/** Whether the server answers, and refuses us. */
export const saysNo = ({ code }: ServerFailure): boolean =>
  code === 'error_answered' || code in REFUSALS;

/** An error, and the server that it is of. */
interface Held {
  readonly error: ErrorFields;
  readonly at: string | undefined;
}

/** Never throws, whatever was thrown. */
export function failureOf(thrown: unknown): ServerFailure {
  const errors = withCauses(thrown, MAX_DEPTH);
  const error = errors[0]?.error ?? {};
  return (
    firstOf({ ...REFUSALS, ...ABSENCES }, errors) ??
    firstOf(NO_PRIMARY, errors) ??
    // The deepest error is the original cause.
    firstOf(VAGUE, errors.toReversed()) ?? {
      code: 'unusable',
      sentence: UNKNOWN,
      told: codeOf(error) ?? (error['name'] === 'Error' ? undefined : (error['name'] as string)),
      parts: {},
      at: [],
    }
  );
}

const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);

function withCauses(thrown: unknown, depth: number, at?: string): Held[] {
  const error = (thrown ?? {}) as ErrorFields;
  // `instanceof` fails for errors of another realm.
  if (typeof error['message'] !== 'string' || depth === 0) return [];
  const { cause, errors, lastNodeError, previousErrors, reason } = error;
  const { servers } = (reason ?? {}) as ErrorFields;
  const ofServers = servers instanceof Map ? [...(servers as Map<string, ErrorFields>)] : [];
  // `previousErrors` is why a transaction of Redis was not begun.
  const held = [cause, lastNodeError, ...listOf(errors), ...listOf(previousErrors)];
  return [
    { error, at: at ?? connectionOf(error) },
    ...held.flatMap((one) => withCauses(one, depth - 1, at)),
    ...ofServers.flatMap(([address, server]) => withCauses(server['error'], depth - 1, address)),
  ];
}

/**
 * The server of an error of MongoDB's driver: in its `address`, or in its words where a connection
 * has ended or the server has a wrong version.
 */
function connectionOf({ name, message, address }: ErrorFields): string | undefined {
  if (!String(name).startsWith('Mongo')) return undefined;
  if (typeof address === 'string') return address;
  return /\b(?:connection \S+ to|Server at) (\S+:\d+) /.exec(String(message))?.[1];
}

/** The first error that has signs of one of the causes. */
function firstOf(causes: Causes, errors: readonly Held[]): ServerFailure | undefined {
  for (const { error } of errors) {
    const found = matchOf(causes, error);
    if (found === undefined) continue;
    const { code } = found;
    const alike = errors.filter((one) => matchOf(causes, one.error)?.code === code);
    const parts = code === 'certificate_name' ? certified(errors) : {};
    return {
      ...found,
      parts: { ...found.parts, ...parts },
      at: [...new Set(alike.flatMap(({ at }) => at ?? []))],
    };
  }
  return undefined;
}

function matchOf(causes: Causes, error: ErrorFields): Omit<ServerFailure, 'at'> | undefined {
  const signs = signsOf(error);
  for (const [code, [pattern, sentence]] of Object.entries(causes)) {
    const match = pattern.exec(signs);
    if (match === null) continue;
    const captured = match.groups === undefined ? match.slice(1).filter(Boolean).join(' ') : '';
    // A number has a name beside it.
    const told = /\D/.test(captured) ? captured : (codeOf(error) ?? captured);
    return {
      code: code as ServerCode,
      sentence,
      told: told || undefined,
      parts: partsOf(match.groups),
    };
  }
  return undefined;
}

const NAMES_MOST = 200;

/** The name that we use, and those of the certificate. */
function certified(errors: readonly Held[]): Readonly<Record<string, string>> {
  for (const { error } of errors) {
    const { cert, message } = error;
    const [, asked] = /(?:Host|IP): (\S+?)\.? is not in the cert's/.exec(String(message)) ?? [];
    const { subjectaltname: names } = (cert ?? {}) as { readonly subjectaltname?: string };
    if (asked !== undefined && cert !== undefined)
      return { asked, names: (names ?? '').slice(0, NAMES_MOST) };
  }
  return {};
}

/** The last version of MongoDB with each wire version that is too old. */
const WIRE_VERSIONS = ['2.4', '2.4', '2.6', '3.0', '3.2', '3.4', '3.6', '4.0', '4.2'];

function partsOf(groups: Readonly<Record<string, string | undefined>> = {}) {
  const found = groups['wire'] && (WIRE_VERSIONS[Number(groups['wire'])] ?? '?');
  return defined({ ...groups, found }) as Readonly<Record<string, string>>;
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
function codeOf(error: ErrorFields): string | undefined {
  const { responseCode, codeName, code, statusCode } = error;
  // The number that a browser's error has says less than its name.
  const told = responseCode ?? (error instanceof DOMException ? undefined : code) ?? statusCode;
  if (typeof told !== 'string' && typeof told !== 'number') return undefined;
  return typeof codeName === 'string' ? `${codeName}, ${told}` : String(told);
}

/** Of one error, and of all its causes together. */
const SAID_MOST = { one: 300, all: 1_000 };

/**
 * The errors' own messages with class and code, for the log: without logins, addresses of e-mail,
 * and what a server quotes of commands and documents.
 */
export function saidBy(thrown: unknown): string {
  const lines = withCauses(thrown, MAX_DEPTH).map(({ error, at }) => {
    const code = codeOf(error);
    const kind = `${String(error['name'])}${code === undefined ? '' : ` (${code})`}`;
    const message = withoutQuotes(String(error['message'])).slice(0, SAID_MOST.one);
    return `${at === undefined ? '' : `${at}: `}${kind}: ${message}`;
  });
  return [...new Set(lines)].join('; ').slice(0, SAID_MOST.all).toWellFormed();
}

/** A name before a login. */
const LOGIN_NAME = String.raw`\b([\w-]*(?:password|passwd|pwd|token|secret|api[_-]?key)|user(?:name)?)`;
const QUOTED = String.raw`"[^"]*"?|'[^']*'?`;
const GIVEN = new RegExp(`${LOGIN_NAME}["'\`]? ?[=:] ?(?:${QUOTED}|\\S+)`, 'gi');
const NAMED = new RegExp(`${LOGIN_NAME} (?:${QUOTED})`, 'gi');
/** What comes after it is quoted: of a command, a row or a key. */
const BEFORE_QUOTE = [
  /(with args beginning with:|dup key:?|Key \(|Failing row contains|\bcommand ['"`]?auth\b).*$/i,
  /(\bauth (?:plain|login|\S*(?:oauth|scram|md5)\S*)).*$/i,
  /((?:\bcommand (?:un|not )\w+|\b(?:un\w+|bad|invalid) command):).*$/i,
] as const;

function withoutQuotes(message: string): string {
  const named = message
    .slice(0, 4 * SAID_MOST.one)
    .replaceAll(/\s+/g, ' ')
    .replaceAll(/:\/\/.*@\S*/g, '://…')
    .replaceAll(/(?:"[^"]*"|\S+)(?:@|%40)\S+/g, '…')
    .replaceAll(/\{.*\}|\{.*$/g, '{…}');
  return BEFORE_QUOTE.reduce((text, sign) => text.replace(sign, '$1 …'), named)
    .replaceAll(/\b(bearer|basic) \S+/gi, '$1 …')
    .replaceAll(GIVEN, '$1=…')
    .replaceAll(NAMED, '$1 …');
}

/** What a server says first tells what it is. */
const SERVERS = [
  [/^HTTP\//, 'an HTTP server'],
  // Answers to PING, also of one that refuses it.
  [/^(?:\+PONG|-(?:ERR|NOAUTH|NOPERM|DENIED|LOADING|MASTERDOWN|MISCONF|BUSY)\b)/, 'Redis'],
  [/^\+OK/, 'a mailbox server (POP3)'],
  [/^\* OK/, 'a mailbox server (IMAP)'],
  [/^(?:220|421|554)[ -]/, 'a mail server'],
  [/^SSH-/, 'an SSH server'],
] as const;

/** Undefined if the bytes are of no server that we know. */
export const serverOf = (bytes: string): string | undefined =>
  SERVERS.find(([sign]) => sign.test(bytes))?.[1];

/** Whether a server has ended TLS, and so speaks it. */
export const isTlsAlert = (message: string): boolean => /SSL alert number \d/.test(message);

/**
 * What our clients find, and no library calls an error: a server ended the connection; a Sentinel
 * answers where a server with data should; a server loads its data; the Sentinels know no primary
 * of our name, and `message` has the names that they know.
 */
export const foundError = (
  name: 'ConnectionEnded' | 'IsSentinel' | 'Loading' | 'UnknownPrimary',
  message = '',
): Error => Object.assign(new Error(message), { name: `${name}Error` });

/* Of Redis. */

/** The library sends such a script again, whole. */
export const lacksScript = ({ message }: Error): boolean => message.startsWith('NOSCRIPT');

/** Another node of the Cluster has the key. */
export const isElsewhere = ({ message }: Error): boolean => /^(?:MOVED|ASK) /.test(message);

export const isReplica = ({ message }: Error): boolean => message.includes('READONLY');

/* Of MongoDB and FerretDB. */

export const lacksLogin = ({ message }: Error): boolean =>
  message.includes('requires authentication');

export const isDeadlock = (errmsg: unknown): boolean => String(errmsg).includes('deadlock');

/** Those of our `names` that the message has. */
export const namedIn = (message: string, names: readonly string[]): string[] =>
  names.filter((name) => new RegExp(`\\b${name}\\b`).test(message));
