/**
 * Explains to an operator in one sentence, without secrets, why a server cannot be used: the
 * `ContactAttempt`, or else the `Place`, says where, and the error says what.
 *
 * Example: "Redis at cache:6379: the connection is refused (ECONNREFUSED); check …".
 */
import { defined } from './defined.ts';
import type { Fault } from './fault.ts';
import type { Logger } from './log.ts';
import {
  failureOf,
  isOfOurClosedClient,
  isVague,
  knownFailure,
  saidBy,
  saysNo,
  isTlsAlert,
  serverOf,
  type ServerCode,
  type ServerFailure,
} from './server-words.ts';
import { connect, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';

export interface Place {
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
  /** What `serverOf` calls a server that we can use. */
  readonly speaks?: string;
}

/** What was tried, where it is not what the setting names. */
export interface ContactAttempt {
  /** Such as "Redis Sentinel". */
  readonly name?: string;
  /** Host and port. */
  readonly at?: string;
  /** Who names this address, if not the setting: "which … names". */
  readonly namedBy?: string;
  /** Where the address can be corrected, if not in the setting. */
  readonly setting?: string;
  readonly login?: string;
  /** Host and port of a proxy. */
  readonly through?: string | undefined;
  /** What the server said of itself. */
  readonly parts?: Readonly<Record<string, string>>;
  /** What else is known, in one phrase. */
  readonly besides?: string | undefined;
  /** Found without the error. */
  readonly failure?: ServerFailure | undefined;
}

/** For this long, a vague failure does not replace a clear one. */
const TOLD_MS = 10_000;

/** The last cause at each place. */
const causes = new Map<string, ServerFailure>();

/** `of` the fault is the name of the place. */
export function contactFault(place: Place, thrown: unknown, attempt: ContactAttempt = {}): Fault {
  const { name } = place;
  const ofPlace = `${name} ${place.at ?? ''}`;
  const isOurs = isOfOurClosedClient(thrown);
  const found =
    (isOurs ? causes.get(ofPlace) : undefined) ?? attempt.failure ?? failureFrom(place, thrown);
  if (!isOurs) causes.set(ofPlace, found);
  const { code, sentence, told, parts: said } = found;
  const given = { ...place, ...defined(attempt) };
  const { setting, at, namedBy, through, besides } = given;
  const words = [
    at === undefined ? given.name : `${given.name} at ${at}`,
    namedBy === undefined ? '' : `, which ${namedBy} names`,
    through === undefined ? '' : `, through the proxy ${through}`,
  ].join('');
  const { asked, names } = said;
  const parts: Readonly<Record<string, string>> = {
    ...attempt.parts,
    ...said,
    code: told === undefined ? '' : ` (${told})`,
    setting,
    login: given.login ?? `user and password in ${setting}`,
    rights: place.rights ?? `user and rights in ${place.setting}`,
    certificate: place.certificate ?? place.setting,
    tls: place.tls ? '' : `, and whether it wants TLS where ${place.setting} has none`,
    certified: asked === undefined ? '' : `: we ask for ${asked}, and it has ${names || 'none'}`,
  };
  const why = sentence.replaceAll(/\{(\w+)\}/g, (_, part: string) => parts[part] ?? '');
  const more = besides === undefined ? '' : ` (${besides})`;
  return { code, of: name, words: `${words}: ${why}${more}` };
}

/** Where an error says little, the kind of server that answered there is told. */
function failureFrom({ speaks, tls = false }: Place, thrown: unknown): ServerFailure {
  const failure = failureOf(thrown);
  const spoken = whoAnswered(thrown);
  if (spoken === undefined || speaks === undefined || !mayBeOther(failure)) return failure;
  if (spoken === 'TLS') return tls ? failure : knownFailure('speaks_tls', {});
  if (spoken !== speaks) return knownFailure('speaks_other', { spoken });
  return tls ? knownFailure('speaks_plain', {}) : failure;
}

/** As from another kind of server. */
const OF_OTHERS: readonly ServerCode[] = [
  'no_answer',
  'connection_ended',
  'tls_disagrees',
  'unusable',
];
const mayBeOther = ({ code }: ServerFailure): boolean => OF_OTHERS.includes(code);

/**
 * Asks what answers at the first of `at`, hosts and ports, if the error may come from another kind
 * of server. Never rejects.
 */
export async function askWhoAnswers(thrown: unknown, at: string | undefined): Promise<void> {
  const [, host, port] = /^\[?([^\s,]+?)\]?:(\d+)(?:,|$)/.exec(at ?? '') ?? [];
  if (host === undefined || !mayBeOther(failureOf(thrown))) return;
  await noteWhoAnswers(thrown, host, Number(port));
}

/** A server could not be used. */
export class ContactError extends Error {
  readonly fault: Fault;

  constructor(place: Place, cause: unknown) {
    const fault = contactFault(place, cause);
    super(fault.words, { cause });
    this.fault = fault;
  }
}

interface OutageLines {
  readonly failing: Set<Contact>;
  /** "is away" and "refuses us" may alternate, and their causes; each is logged once. */
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
  #fault: Fault | undefined;
  #toldAtMs = -Infinity;
  #hasWorked = false;

  constructor(place: Place, log: Logger) {
    this.#place = place;
    this.#log = log;
    this.#outage = outageAt(place, log);
  }

  /** Empty when the server can be used or was not tried yet. */
  readonly warnings = (): readonly Fault[] => (this.#fault === undefined ? [] : [this.#fault]);

  failed(thrown: unknown, attempt?: ContactAttempt): void {
    this.#note(thrown, attempt);
    // A server that has worked is of our kind, and may count questions as an attack.
    if (this.#hasWorked) return;
    const fault = this.#fault;
    void askWhoAnswers(thrown, attempt?.at ?? this.#place.at).then(() => {
      if (this.#fault === fault && whoAnswered(thrown) !== undefined) this.#note(thrown, attempt);
    });
  }

  #note(error: unknown, attempt: ContactAttempt = {}): void {
    const { name } = this.#place;
    const failure = attempt.failure ?? failureFrom(this.#place, error);
    const vague = isVague(failure);
    // The end of the connection often follows from the cause that was told just before.
    if (vague && this.#fault !== undefined && performance.now() - this.#toldAtMs < TOLD_MS) return;
    const fault = contactFault(this.#place, error, attempt);
    this.#fault = fault;
    if (!vague) this.#toldAtMs = performance.now();
    const { failing, logged } = this.#outage;
    failing.add(this);
    const state = saysNo(failure) ? 'refuses us' : 'is away';
    // Each clear cause is logged, and a vague one if it is the first.
    const causeLogged = vague ? state : `${state}: ${failure.code}`;
    if (logged.has(causeLogged)) return;
    logged.add(state).add(causeLogged);
    const fields = { err: error, reason: fault.words, said: saidBy(error) };
    this.#log.warn(fields, `${name} ${state}`);
  }

  ok(): void {
    this.#hasWorked = true;
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

/*
 * Finds what kind of server answers at an address. A library that meets another protocol mostly
 * waits or ends the connection, and its error does not say why.
 */

/** Of all questions to one address together, as they are asked at once. */
const ANSWER_MS = 1_000;
/** A mail server greets first; others wait for us. */
const GREETING_MS = 200;
/** Of a message of MongoDB; the signs of others are shorter. */
const HEADER_BYTES = 16;
/** An address is asked again after this time. */
const KEPT_MS = 60_000;
const ADDRESSES_KEPT = 100;

/** MongoDB's `hello` in an OP_MSG. Its answer has the operation's code, too. */
const HELLO = Buffer.from(
  '340000000100000000000000dd07000000000000001f0000001068656c6c6f0001000000' +
    '02246462000600000061646d696e0000',
  'hex',
);
const OP_MSG = HELLO.subarray(12, HEADER_BYTES);

const answered = new WeakMap<object, string>();
const asked = new Map<
  string,
  { readonly atMs: number; readonly who: Promise<string | undefined> }
>();

/** What `noteWhoAnswers` found of this error. */
export const whoAnswered = (error: unknown): string | undefined =>
  answered.get(Object(error) as object);

/** Notes with an error what answers at the address that it is of. Never rejects. */
export async function noteWhoAnswers(error: unknown, host: string, port: number): Promise<void> {
  const at = `${host}:${port}`;
  const before = asked.get(at);
  const isKept = before !== undefined && performance.now() - before.atMs < KEPT_MS;
  const who = isKept ? before.who : whoAnswersAt(host, port);
  if (!isKept) {
    if (asked.size >= ADDRESSES_KEPT) asked.clear();
    asked.set(at, { atMs: performance.now(), who });
  }
  const server = await who;
  if (server !== undefined) answered.set(Object(error) as object, server);
}

async function whoAnswersAt(host: string, port: number): Promise<string | undefined> {
  const [words, hello, tls] = await Promise.all([
    firstBytes(connect({ host, port }), 'PING\r\n', GREETING_MS),
    firstBytes(connect({ host, port }), HELLO, 0),
    takesTls(host, port),
  ]);
  if (hello?.subarray(12, HEADER_BYTES).equals(OP_MSG)) return 'MongoDB';
  return tls ? 'TLS' : words && serverOf(words.toString('latin1'));
}

/** What a server says at first or, if nothing comes within `waitMs`, after `question`. */
function firstBytes(
  socket: Socket,
  question: string | Buffer,
  waitMs: number,
): Promise<Buffer | undefined> {
  let asking: NodeJS.Timeout | undefined;
  let said = Buffer.alloc(0);
  return untilAnswered<Buffer | undefined>(socket, (answer) => {
    socket.on('close', () => answer(said));
    socket.on('connect', () => {
      asking = setTimeout(() => socket.write(question), waitMs);
    });
    socket.on('data', (more: Buffer) => {
      clearTimeout(asking);
      said = Buffer.concat([said, more]);
      if (said.length >= HEADER_BYTES) answer(said);
    });
  }).then((bytes) => {
    clearTimeout(asking);
    return bytes ?? (said.length === 0 ? undefined : said);
  });
}

function takesTls(host: string, port: number): Promise<boolean | undefined> {
  // Nothing is sent or read, so the certificate does not matter.
  const socket = connectTls({ host, port, rejectUnauthorized: false });
  return untilAnswered<boolean>(socket, (answer) => {
    socket.on('secureConnect', () => answer(true));
    socket.on('error', ({ message }) => answer(isTlsAlert(message)));
    socket.on('close', () => answer(false));
  });
}

/** Undefined if there is no answer in time. Destroys the socket. */
async function untilAnswered<T>(
  socket: Socket,
  listen: (answer: (value: T) => void) => void,
): Promise<T | undefined> {
  let timer: NodeJS.Timeout | undefined;
  try {
    return await new Promise<T | undefined>((resolve) => {
      timer = setTimeout(() => resolve(undefined), ANSWER_MS);
      // Its `close` follows.
      socket.on('error', () => undefined);
      listen(resolve);
    });
  } finally {
    clearTimeout(timer);
    socket.destroy();
  }
}
