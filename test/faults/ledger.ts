/** The client's ledger of requests and answers, written before and after each request. */
import { hash } from 'node:crypto';
import {
  appendFileSync,
  closeSync,
  createReadStream,
  mkdirSync,
  openSync,
  writeSync,
} from 'node:fs';
import { dirname } from 'node:path';
import { createInterface } from 'node:readline';
import { defined } from '../../internal/platform/process/defined.ts';
import type { SubmissionRecord } from '../../internal/submission/submission.ts';

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
  readonly receipt?: string;
}

export interface LedgerEntry {
  /** The number of the request, which is also in its User-Agent. */
  readonly n: number;
  readonly phase: string;
  readonly kind: RequestKind;
  readonly idempotencyKey?: string;
  /** It asks for a receipt. */
  readonly receipted?: true;
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

/**
 * A line of the ledger: an operation of Jepsen's histories. Every request is a process of its own.
 * `ok` is a 202 and a look-up that was answered, `fail` a 4xx or 500, after which nothing may have
 * been accepted, `info` no answer.
 */
export interface Operation {
  readonly index: number;
  readonly type: 'invoke' | 'ok' | 'fail' | 'info';
  readonly process: number | string;
  /** Of the process `nemesis` the name of a fault, or `healed`. */
  readonly f: string;
  /** Nanoseconds of Unix time; the order of lines is the order of events. */
  readonly time: number;
  readonly value: object;
  readonly error?: string | number;
}

type Event = Omit<Operation, 'index' | 'time'> & { readonly at?: number };

const NS_PER_MS = 1_000_000;

/** What a look-up was answered: 200 and a state, or 404. */
export interface Seen {
  readonly status: number;
  readonly state?: string;
}

export class Ledger {
  readonly file: string;
  readonly #entries: LedgerEntry[] = [];
  readonly #descriptor: number;
  readonly #first: number;
  #lines = 0;
  #acknowledged = 0;
  #lookUps = 0;

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

  /** The number of requests that were answered 202. */
  get acknowledged(): number {
    return this.#acknowledged;
  }

  sending(request: Omit<LedgerEntry, 'n' | 'sentAt' | 'answer' | 'failure'>): LedgerEntry {
    const entry: LedgerEntry = {
      ...request,
      n: this.#first + this.#entries.length,
      sentAt: Date.now(),
    };
    this.#entries.push(entry);
    const { sentAt, body, ...value } = entry;
    const sha256 = hash('sha256', body);
    const sent = { ...value, body: body.toString('base64'), sha256 };
    this.#submit(entry, { type: 'invoke', value: sent, at: sentAt });
    return entry;
  }

  answered(entry: LedgerEntry, answer: Omit<Answer, 'at'>): void {
    const { status, requestId, xRequestId, receipt } = answer;
    entry.answer = { at: Date.now(), ...answer };
    const value = { n: entry.n, status, id: requestId, xRequestId, receipt };
    if (status === ACCEPTED) {
      this.#acknowledged += 1;
      this.#submit(entry, { type: 'ok', value, at: entry.answer.at });
    } else this.#submit(entry, { type: 'fail', value, at: entry.answer.at, error: status });
  }

  unanswered(entry: LedgerEntry, error: string): void {
    entry.failure = { at: Date.now(), error };
    const value = { n: entry.n };
    this.#submit(entry, { type: 'info', value, at: entry.failure.at, error });
  }

  /** Begins the look-up of a request; what it returns ends it. */
  lookingUp(id: string): (seen: Seen | undefined, error?: string) => void {
    this.#lookUps += 1;
    const look = { process: `look-up ${this.#first + this.#lookUps}`, f: 'look-up' } as const;
    this.#write({ ...look, type: 'invoke', value: { id } });
    return (seen, error = 'not answered') =>
      this.#write(
        seen === undefined
          ? { ...look, type: 'fail', value: { id }, error }
          : { ...look, type: 'ok', value: { id, ...seen } },
      );
  }

  /** Adds that a fault began, or that it is healed, and what was killed until then. */
  fault(f: string, kills: ReadonlyMap<string, number>): void {
    const value = { kills: Object.fromEntries(kills) };
    this.#write({ process: 'nemesis', type: 'info', f, value });
  }

  /** Adds what the database has in the end; a closed ledger takes it, too. */
  read(records: readonly SubmissionRecord[]): void {
    const read = { process: 'reader', f: 'read' } as const;
    this.#write({ ...read, type: 'invoke', value: {} });
    this.#write({ ...read, type: 'ok', value: { records: records.map(readOf) } });
  }

  close(): void {
    closeSync(this.#descriptor);
  }

  #submit({ n }: LedgerEntry, event: Pick<Event, 'type' | 'value' | 'at' | 'error'>): void {
    this.#write({ process: n, f: 'submit', ...event });
  }

  #write({ at = Date.now(), ...event }: Event): void {
    this.#lines += 1;
    const operation: Operation = { index: this.#lines - 1, ...event, time: at * NS_PER_MS };
    const line = `${JSON.stringify(operation)}\n`;
    if (event.f === 'read') appendFileSync(this.file, line);
    else writeSync(this.#descriptor, line);
  }
}

/** A record of the final read, as checkers need it. */
function readOf({ _id: id, ...record }: SubmissionRecord): object {
  const { state, userAgent, bodySha256: sha256, adopted } = record;
  return { id, n: numberOf(userAgent), state, sha256, adopted };
}

/** Reads the requests of a ledger's file. */
export async function readLedger(file: string): Promise<LedgerEntry[]> {
  const entries = new Map<number, LedgerEntry>();
  for await (const line of createInterface({ input: createReadStream(file) })) {
    const { f, type, time, value, error } = JSON.parse(line) as Operation;
    if (f !== 'submit') continue;
    const at = time / NS_PER_MS;
    if (type === 'invoke') {
      const { body, ...sent } = value as Omit<LedgerEntry, 'body'> & { readonly body: string };
      entries.set(sent.n, { ...sent, sentAt: at, body: Buffer.from(body, 'base64') });
      continue;
    }
    const { n, status, id, xRequestId, receipt } = value as Answered;
    const entry = entries.get(n)!;
    if (type === 'info') entry.failure = { at, error: String(error) };
    else
      entry.answer = {
        at,
        status,
        ...(id === undefined ? {} : { requestId: id }),
        ...defined({ xRequestId, receipt }),
      };
  }
  return [...entries.values()];
}

interface Answered {
  readonly n: number;
  readonly status: number;
  readonly id?: string;
  readonly xRequestId?: string;
  readonly receipt?: string;
}

const ACCEPTED = 202;
