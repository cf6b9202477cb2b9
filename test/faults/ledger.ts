/** The client's ledger of requests and answers, written before and after each request. */
import { closeSync, mkdirSync, openSync, writeSync } from 'node:fs';
import { dirname } from 'node:path';

/**
 * Kinds of bodies: a JSON object (valid, invalid), none (malformed), with a bad key (unauthorized),
 * ended early (cut).
 */
export type RequestKind = 'valid' | 'invalid' | 'malformed' | 'unauthorized' | 'cut';

/** The unique values of an account, as the audit compares them. */
export interface ApplicantKeys {
  readonly email: string;
  readonly ein: string;
}

export interface Answer {
  readonly at: number;
  readonly status: number;
  readonly requestId?: string;
  readonly xRequestId?: string;
}

export interface LedgerEntry {
  /** The number of the request, which is also in its User-Agent. */
  readonly n: number;
  readonly phase: string;
  readonly kind: RequestKind;
  readonly idempotencyKey?: string;
  readonly applicant?: ApplicantKeys;
  /** The process that got it, such as `ingest-1.3`: slot 1, third process. */
  readonly instance: string;
  readonly sentAt: number;
  readonly body: Buffer;
  answer?: Answer;
  failure?: { readonly at: number; readonly error: string };
}

export const CLIENT_GAVE_UP = 'ABORT_ERR';

const USER_AGENT = 'chaos/';
/** The User-Agent of requests that a fault sends, which are all refused and not in the ledger. */
export const FAULT_USER_AGENT = 'chaos-fault';

export const userAgentOf = (n: number): string => `${USER_AGENT}${n}`;

/** Returns the number in a User-Agent, or undefined. */
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
   * Writes JSON lines to `file` before the request is sent and before its answer counts. Ledgers of
   * one database need different `first` numbers.
   */
  constructor(file: string, first: number) {
    this.file = file;
    this.#first = first;
    mkdirSync(dirname(file), { recursive: true });
    this.#descriptor = openSync(file, 'w');
  }

  get entries(): readonly LedgerEntry[] {
    return this.#entries;
  }

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
