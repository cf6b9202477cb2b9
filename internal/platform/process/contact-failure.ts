/**
 * Explains to an operator in one sentence, without secrets, why a server cannot be used: the
 * `Place` says where, the error alone says what.
 *
 * Example: "Redis at cache:6379: the connection is refused (ECONNREFUSED); check …".
 */
import type { Fault } from './fault.ts';
import type { Logger } from './log.ts';
import {
  failureOf,
  isOfOurClosedClient,
  isVague,
  saysNo,
  type ServerFailure,
} from './server-words.ts';

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

/** For this long, a vague failure does not replace a clear one. */
const TOLD_MS = 10_000;

/** The last cause at each place. */
const causes = new Map<string, ServerFailure>();

/** `of` the fault is the name of the place. */
export function contactFault(place: Place, thrown: unknown): Fault {
  const { name, at, setting } = place;
  const where = at === undefined ? name : `${name} at ${at}`;
  const isOurs = isOfOurClosedClient(thrown);
  const found = (isOurs ? causes.get(where) : undefined) ?? failureOf(thrown);
  if (!isOurs) causes.set(where, found);
  const { code, sentence, told } = found;
  const parts: Readonly<Record<string, string>> = {
    code: told === undefined ? '' : ` (${told})`,
    setting,
    login: place.login ?? `user and password in ${setting}`,
    rights: place.rights ?? `user and rights in ${setting}`,
    certificate: place.certificate ?? setting,
    tls: place.tls ? '' : `, and whether it wants TLS where ${setting} has none`,
  };
  const said = sentence.replaceAll(/\{(\w+)\}/g, (_, part: string) => parts[part] ?? '');
  return { code, of: name, words: `${where}: ${said}` };
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
  #fault: Fault | undefined;
  #toldAtMs = -Infinity;

  constructor(place: Place, log: Logger) {
    this.#place = place;
    this.#log = log;
    this.#outage = outageAt(place, log);
  }

  /** Empty when the server can be used or was not tried yet. */
  readonly warnings = (): readonly Fault[] => (this.#fault === undefined ? [] : [this.#fault]);

  failed(error: unknown): void {
    const { name } = this.#place;
    const failure = failureOf(error);
    const vague = isVague(failure);
    // The end of the connection often follows from the cause that was told just before.
    if (vague && this.#fault !== undefined && performance.now() - this.#toldAtMs < TOLD_MS) return;
    const fault = contactFault(this.#place, error);
    this.#fault = fault;
    if (!vague) this.#toldAtMs = performance.now();
    const { failing, logged } = this.#outage;
    failing.add(this);
    const state = saysNo(failure) ? 'refuses us' : 'is away';
    if (logged.has(state)) return;
    logged.add(state);
    this.#log.warn({ err: error, reason: fault.words }, `${name} ${state}`);
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
