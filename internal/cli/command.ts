/** An operator's command: what it is called with, and what it tells. */
import type { OrderDesk } from '../orders/order.ts';
import type { Clock } from '../platform/process/clock.ts';
import type { Reads } from '../view/reads.ts';
import type { OptionName, Positional, Values } from './options.ts';

export const EXIT = {
  ok: 0,
  found: 1,
  usage: 2,
  storeAway: 3,
  /** The number of sendmail's EX_TEMPFAIL, for which a mail system gives the mail again. */
  later: 75,
  stopped: 130,
  fault: 70,
} as const;
export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

/** The thing is missing, or its state forbids the command; with `later`, only for now. */
export class CommandError extends Error {
  override readonly name = 'CommandError';
  readonly code: ExitCode;

  constructor(message: string, code: ExitCode = EXIT.found) {
    super(message);
    this.code = code;
  }
}

/** The command line is wrong. */
export class UsageError extends CommandError {
  constructor(message: string) {
    super(message, EXIT.usage);
  }
}

export type Desk = OrderDesk & Pick<Reads, 'accountRequestsKeptMs'>;

/** What a command tells: one model, as text for people or as JSON for programs. */
export interface Report {
  readonly json: unknown;
  /** Safe for a terminal; empty where the notes say all. */
  readonly text: string;
  /** For people, on standard error after the text. */
  readonly notes?: readonly string[];
  readonly code?: ExitCode;
  /** It ended the command before all was done. */
  readonly fault?: unknown;
}

/** A line of JSON for each, told as its reader takes them. */
export interface Lines {
  readonly lines: AsyncIterable<object>;
}

export interface Call {
  readonly positionals: readonly string[];
  readonly values: Values;
  readonly clock: Clock;
  /** Tells people something at once, on standard error. */
  readonly note: (text: string) => void;
  /** Reading this catches Ctrl-C, so only commands that can stop between two pages do it. */
  readonly stop: AbortSignal;
  readonly keysNamespace: string;
  /** Opens the stores at first use. */
  readonly desk: Desk;
}

/** Its help stands in help.yaml under its name. */
export interface Command {
  readonly name: string;
  readonly positionals: readonly Positional[];
  readonly options: readonly OptionName[];
  readonly run: (call: Call) => Promise<Report | Lines>;
}
