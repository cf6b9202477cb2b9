/** The interface of an operator's command. */
import type { OrderDesk } from '../orders/order.ts';
import type { Clock } from '../platform/process/clock.ts';
import type { FoundSubmission, Missing } from '../view/look-up.ts';
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

/** Throws `CommandError` for what is missing. */
export function foundOr(found: FoundSubmission | Missing): FoundSubmission {
  if ('missing' in found) throw new CommandError(found.missing);
  return found;
}

export type Desk = OrderDesk & Pick<Reads, 'accountRequestsKeptMs'>;

export interface Output {
  line(text?: string): void;
  json(value: unknown): void;
  jsonLine(value: unknown): void;
  /** For people only, on standard error. */
  note(text: string): void;
  /** Resolves once the output is written, so that an export waits for its reader. */
  drained(): Promise<void>;
}

export interface Call {
  readonly positionals: readonly string[];
  readonly values: Values;
  readonly out: Output;
  readonly clock: Clock;
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
  readonly run: (call: Call) => Promise<ExitCode>;
}
