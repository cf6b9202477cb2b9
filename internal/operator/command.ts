/** What a command of the operator is, what it is given, and how it answers. */
import type { Collection } from 'mongodb';
import type { AccountCorrections } from '../account/account-corrections.ts';
import type { Account } from '../account/account.ts';
import type { KeyStore, PartnerKey } from '../partner/key-store.ts';
import type { Clock } from '../platform/clock.ts';
import type { OperatorMoves } from '../submission/operator-moves.ts';
import type { SubmissionStore } from '../submission/submission-store.ts';
import type { SubmissionRecord } from '../submission/submission.ts';
import type { OptionName, Values } from './options.ts';
import type { Trail } from './trail.ts';

/** What the shell is told. */
export const EXIT = {
  /** Done, found, or nothing wrong. */
  ok: 0,
  /** `audit` found problems; the request, account or key is not there; it is not in a state for this. */
  found: 1,
  /** The command line or the configuration is wrong. */
  usage: 2,
  /** MongoDB is away, refuses us, or took too long. */
  storeAway: 3,
  /** A fault of this program. */
  fault: 70,
} as const;
export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

/** The stores and rules that commands work with. */
export interface Desk {
  readonly requests: Collection<SubmissionRecord>;
  readonly accounts: Collection<Account>;
  readonly partnerKeys: Collection<PartnerKey>;
  readonly keyStore: Pick<KeyStore, 'adopt'>;
  readonly rateLimited: Collection<{ readonly _id: string; readonly requestIds: readonly string[] }>;
  readonly store: SubmissionStore;
  readonly moves: OperatorMoves;
  readonly corrections: AccountCorrections;
  readonly trail: Trail;
  /** How long the request of an account is kept at least, in milliseconds; after that it may be gone. */
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
  /** Opens the stores at first use; throws when the configuration is wrong. */
  readonly desk: Desk;
}

export interface Command {
  /** One or two words. */
  readonly name: string;
  /** In the order they are given; one in brackets may be left out. */
  readonly positionals: readonly string[];
  /** One line for the list of commands. */
  readonly about: string;
  /** More of it, for its own help. */
  readonly details: string;
  readonly options: readonly OptionName[];
  readonly examples: readonly string[];
  run(call: Call): Promise<ExitCode>;
}
