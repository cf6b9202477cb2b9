/**
 * The client's ledger: what was sent and what was answered, known before and after each request,
 * whatever the service says.
 */
import { closeSync, mkdirSync, openSync, writeSync } from 'node:fs';
import { dirname } from 'node:path';

/**
 * What the contract promises for a body: `valid` and `invalid` are JSON objects (202), `malformed`
 * is none (400), `unauthorized` comes with a bad key, `cut` ends in the middle of its body.
 */
export type RequestKind = 'valid' | 'invalid' | 'malformed' | 'unauthorized' | 'cut';

/**
 * The two values an account is unique by, as the audit compares them: the e-mail trimmed and in
 * lower case.
 */
export interface ApplicantKeys {
  readonly email: string;
  readonly ein: string;
}

export interface Answer {
  /** Milliseconds of Unix time. */
  readonly at: number;
  readonly status: number;
  /** `data.request_id` of the body. */
  readonly requestId?: string;
  /** The X-Request-Id header. */
  readonly xRequestId?: string;
}

export interface LedgerEntry {
  /**
   * Counts up from the ledger's first number; also in the request's User-Agent, which the record
   * keeps.
   */
  readonly n: number;
  /** The fault during which it was sent. */
  readonly phase: string;
  readonly kind: RequestKind;
  /** The Idempotency-Key it was sent with; a client that uses one asks again until it is answered. */
  readonly idempotencyKey?: string;
  /** Only of `valid` ones. */
  readonly applicant?: ApplicantKeys;
  /** The ingest process it went to, such as `ingest-1.3`: slot 1, third process in it. */
  readonly instance: string;
  readonly sentAt: number;
  /** Exactly what was put on the wire as body. */
  readonly body: Buffer;
  answer?: Answer;
  /** Why there is no answer. */
  failure?: { readonly at: number; readonly error: string };
}

/** The error of a request whose client ended its wait. */
export const CLIENT_GAVE_UP = 'ABORT_ERR';

const USER_AGENT = 'chaos/';
/** Of requests that a fault sends itself: they are in no ledger, and all must be refused. */
export const FAULT_USER_AGENT = 'chaos-fault';

/** The User-Agent of request `n`. */
export const userAgentOf = (n: number): string => `${USER_AGENT}${n}`;

/** The `n` of a User-Agent; undefined where it is none of ours. */
export function numberOf(userAgent: string | undefined): number | undefined {
  return userAgent?.startsWith(USER_AGENT) === true
    ? Number(userAgent.slice(USER_AGENT.length))
    : undefined;
}

export class Ledger {
  readonly file: string;
  readonly #entries: LedgerEntry[] = [];
  readonly #descriptor: number;
  readonly #first: number;

  /**
   * Appends to `file` as JSON lines; each line is with the system before the request goes out or
   * its answer counts. Ledgers that share a database need ranges of their own, by their `first`
   * numbers.
   */
  constructor(file: string, first = 1) {
    this.file = file;
    this.#first = first;
    mkdirSync(dirname(file), { recursive: true });
    this.#descriptor = openSync(file, 'w');
  }

  get entries(): readonly LedgerEntry[] {
    return this.#entries;
  }

  /** Before sending. */
  sending(request: Omit<LedgerEntry, 'n' | 'sentAt' | 'answer' | 'failure'>): LedgerEntry {
    const entry: LedgerEntry = {
      ...request,
      n: this.#first + this.#entries.length,
      sentAt: Date.now(),
    };
    this.#entries.push(entry);
    this.#write({ ...entry, body: entry.body.toString('base64') });
    return entry;
  }

  answered(entry: LedgerEntry, answer: Omit<Answer, 'at'>): void {
    entry.answer = { at: Date.now(), ...answer };
    this.#write({ n: entry.n, answer: entry.answer });
  }

  unanswered(entry: LedgerEntry, error: string): void {
    entry.failure = { at: Date.now(), error };
    this.#write({ n: entry.n, failure: entry.failure });
  }

  close(): void {
    closeSync(this.#descriptor);
  }

  #write(line: object): void {
    writeSync(this.#descriptor, `${JSON.stringify(line)}\n`);
  }
}
