/** What a command of the operator is, what it is given, and how it answers. */
import type { AccountCorrections } from '../account/account-corrections.ts';
import type { AccountQueries } from '../account/account-queries.ts';
import type { Trail } from '../audit/trail.ts';
import type { PartnerHolds } from '../partner/flags.ts';
import type { KeyStore } from '../partner/key-store.ts';
import type { Clock } from '../platform/clock.ts';
import type { OperatorMoves } from '../submission/operator-moves.ts';
import type { SupportQueries } from '../submission/support-queries.ts';
import type { OptionName, Positional, Values } from './options.ts';

/** What the shell is told. */
export const EXIT = {
  /** Done, found, or nothing wrong. */
  ok: 0,
  /**
   * `audit` found problems; the request, account or key is not there; it is not in a state for
   * this.
   */
  found: 1,
  /** The command line or the configuration is wrong. */
  usage: 2,
  /** MongoDB is away, answers with an error, or took too long. */
  storeAway: 3,
  /** Stopped by Ctrl-C or SIGTERM; what was done stays done. */
  stopped: 130,
  /** A fault of this program. */
  fault: 70,
} as const;
export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

/**
 * A command cannot do what it is asked: the thing is not there, or not in a state for this. One
 * line, exit code 1.
 */
export class CommandError extends Error {
  override readonly name = 'CommandError';
}

/** The stores and rules that commands work with. */
export interface Desk {
  readonly submissions: SupportQueries;
  readonly accounts: AccountQueries;
  readonly keys: Pick<
    KeyStore,
    'list' | 'beginningWith' | 'revoke' | 'deferred' | 'confirm' | 'disabled' | 'disable' | 'enable'
  >;
  readonly holds: Pick<PartnerHolds, 'set' | 'clear' | 'list' | 'isSet'>;
  readonly moves: OperatorMoves;
  readonly corrections: AccountCorrections;
  readonly trail: Trail;
  /**
   * How long the request of an account is kept at least, in milliseconds; after that it may be
   * gone.
   */
  readonly accountRequestsKeptMs: number;
}

export interface Output {
  /** A line of the answer. */
  line(text?: string): void;
  /** A value of the answer as JSON: indented, or on one line. */
  json(value: unknown): void;
  jsonLine(value: unknown): void;
  /** A remark beside the answer, for people only. */
  note(text: string): void;
  /** Resolves once what was written has gone out; an endless answer waits for its reader there. */
  drained(): Promise<void>;
}

export interface Call {
  readonly positionals: readonly string[];
  readonly values: Values;
  readonly out: Output;
  readonly clock: Clock;
  /**
   * Standard input as text. Throws a `UsageError` when it is a terminal, too large or does not end.
   */
  input(): Promise<string>;
  /**
   * Aborts on the first Ctrl-C or SIGTERM, for a command that can stop between two pages; asked for
   * by no other.
   */
  readonly stop: AbortSignal;
  /** Where a partner's Secret belongs unless the caller says otherwise. */
  readonly keysNamespace: string;
  /** Opens the stores at first use; throws when the configuration is wrong. */
  readonly desk: Desk;
}

export interface Command {
  /** One or two words. */
  readonly name: string;
  /** In the order they are given. */
  readonly positionals: readonly Positional[];
  /** One line for the list of commands. */
  readonly about: string;
  /** More of it, for its own help, after `about` and a full stop. */
  readonly details: string;
  readonly options: readonly OptionName[];
  readonly examples: readonly string[];
  run(call: Call): Promise<ExitCode>;
}
