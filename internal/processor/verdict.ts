/** The verdict of a step, and what follows from each class of failure. */
import { MongoError, MongoNetworkError, MongoServerSelectionError } from 'mongodb';
import type { Reason, StoredReason } from '../application/reasons.ts';
import type { Blame } from '../mail/mail-gate.ts';
import type { HandOver } from '../mail/relay-answers.ts';
import { DeadlineError, jittered } from '../platform/process/deadline.ts';
import { defined } from '../platform/process/defined.ts';
import { failureOf } from '../platform/process/server-words.ts';
import { NotDurableError } from '../platform/stores/mongo.ts';
import { asLastError, type Fact, type SubmissionRecord } from '../submission/submission.ts';
import type { AttemptCounts, Changes } from '../submission/worker-moves.ts';
import type { Attempt, PreparedMail } from './step.ts';

/** Only `transient` raises `attempts`; `ambiguous` has a count of its own. */
export type FailureClass =
  | 'permanent'
  | 'transient'
  /** The database is away or takes no writes. */
  | 'infrastructure'
  | 'relay'
  /** Our sender, settings, rights or disk are at fault. */
  | 'ours'
  | 'busy'
  /** The relay declines this mail for now. */
  | 'throttled'
  | 'ambiguous'
  /** Several workers died holding the record. */
  | 'crashed';

/** The step has done its work, and the record moves. */
export type Done = { readonly kind: 'done' } & (
  | {
      readonly event: 'create_account';
      readonly changes: Changes;
      /** The account was created with this hand-over in its ledger. */
      readonly firstMail?: PreparedMail | undefined;
    }
  | {
      readonly event: 'reject';
      readonly changes: Changes & { readonly reasons: readonly Reason[]; readonly reason: string };
    }
  | { readonly event: 'complete'; readonly changes?: undefined }
);

/** The record is due again later. */
interface PutBack {
  readonly delayMs: number;
  readonly changes: AttemptCounts;
}

export type Verdict =
  | Done
  /** The record is another worker's, or its partner is on hold. */
  | { readonly kind: 'claim_lost' }
  /** An earlier request of the same applicant is decided first. */
  | (PutBack & { readonly kind: 'waits' })
  | Failed;

export const LOST = { kind: 'claim_lost' } as const satisfies Verdict;

/** A pause is this share of the total back-off, within bounds. */
interface PauseRule {
  readonly share: number;
  readonly firstMs: number;
  readonly capMs: number;
}
/**
 * A share of 1 doubles: 30 s, 30 s, 1 min, 2, 4, 8, 16, 32 min, 1 h 4, 2 h 8, then every 4 h.
 * Failures that an operator corrects are retried more often.
 */
export const BACK_OFFS = {
  transient: { share: 1, firstMs: 30_000, capMs: 14_400_000 },
  ours: { share: 0.25, firstMs: 60_000, capMs: 900_000 },
  busy: { share: 0.05, firstMs: 30_000, capMs: 3_600_000 },
  throttled: { share: 1, firstMs: 5_000, capMs: 900_000 },
} as const satisfies Record<string, PauseRule>;
/** docs/privacy.md promises that a record ends after three days. */
export const BACKED_OFF_AT_MOST_MS = 3 * 86_400_000;
/** After the first ambiguous end and the second: a short fault of the relay makes no dead letter. */
const AMBIGUOUS_WAITS_MS = [30_000, 3_000_000] as const;
/** E-mails that no operator ordered; an unknown result counts as one. */
export const MAX_AMBIGUOUS = AMBIGUOUS_WAITS_MS.length + 1;

interface Failure {
  readonly failure: FailureClass;
  readonly fact: Fact;
}

type EndingClass = Exclude<FailureClass, 'infrastructure' | 'relay'>;
export type Failed = Failure &
  (
    | (PutBack & { readonly kind: 'later' | 'again' })
    | {
        readonly kind: 'end';
        readonly failure: EndingClass;
        readonly event: 'bounce' | 'give_up';
        readonly changes: Changes;
      }
  );

type SoFar = Pick<SubmissionRecord, 'attempts' | 'ambiguous' | 'backedOffMs'>;

export function verdictOfFailure(
  { attempts, ambiguous: before = 0, backedOffMs = 0 }: SoFar,
  {
    failure,
    fact,
    reasons,
    ambiguous = before,
  }: Failure & {
    /** Includes this attempt's e-mail. */
    readonly ambiguous?: number;
    /** Why the relay refused the applicant's address. */
    readonly reasons?: readonly StoredReason[];
  },
  random: () => number = Math.random,
): Failed {
  const end = (event: 'bounce' | 'give_up', ending: EndingClass): Failed => {
    const changes = {
      attempts,
      ambiguous,
      ...asLastError(fact),
      reason: fact,
      ...defined({ reasons }),
    };
    return { kind: 'end', failure: ending, fact, event, changes };
  };
  const again = (waitMs: number): Failed => {
    const delayMs = jittered(waitMs, random);
    const changes = {
      attempts: attempts + (failure === 'transient' ? 1 : 0),
      ambiguous,
      backedOffMs: backedOffMs + delayMs,
      ...asLastError(fact),
    };
    return { kind: 'again', failure, fact, delayMs, changes };
  };
  switch (failure) {
    case 'permanent':
      return end('bounce', failure);
    case 'crashed':
      return end('give_up', failure);
    case 'infrastructure':
    case 'relay':
      // Behind all that was due before: an e-mail that causes the outage stops no other.
      return { kind: 'later', failure, fact, delayMs: 0, changes: asLastError(fact) };
    case 'ambiguous': {
      const waitMs = AMBIGUOUS_WAITS_MS[Math.max(0, ambiguous - 1)];
      return waitMs === undefined ? end('give_up', failure) : again(waitMs);
    }
    case 'transient':
    case 'ours':
    case 'busy':
    case 'throttled': {
      if (backedOffMs >= BACKED_OFF_AT_MOST_MS) return end('give_up', failure);
      const { share, firstMs, capMs } = BACK_OFFS[failure];
      return again(Math.min(capMs, Math.max(firstMs, backedOffMs * share)));
    }
  }
}

/** Of the log. An unknown address is an ordinary end. */
export function levelOf({ failure, kind }: Failed): 'info' | 'warn' | 'error' {
  if (failure === 'permanent') return 'info';
  if (failure === 'ours' || kind === 'end') return 'error';
  const isOrdinary = ['busy', 'throttled', 'relay'].includes(failure);
  return isOrdinary ? 'info' : 'warn';
}

/** An error that a step throws is a failure of that step. */
export function verdictOfError(
  error: unknown,
  { record, step }: Pick<Attempt, 'record' | 'step'>,
): Failed {
  const goal = step === 'account' ? 'creating the account' : 'mailing the applicant';
  const name = error instanceof Error ? error.name : 'unknown error';
  const { told } = failureOf(error);
  const of = told === undefined || told === name ? name : `${name}, ${told}`;
  const fact = { code: 'step_failed', of, words: `${goal} failed: ${of}` } as const;
  return verdictOfFailure(record, { failure: classOfError(error), fact });
}

/** Elections, shutdown or overload. FerretDB answers 1 while its PostgreSQL is away. */
const AWAY_CODES = new Set([
  1, 6, 7, 50, 64, 89, 91, 189, 262, 9_001, 10_058, 10_107, 11_600, 11_602, 13_435, 13_436,
]);
/** Missing rights, a wrong password, a full disk or an impossible write concern. */
const OPERATOR_CODES = new Set([11, 13, 18, 79, 100, 8_000, 14_031]);

export function classOfError(error: unknown): FailureClass {
  if (error instanceof DeadlineError || error instanceof NotDurableError) return 'infrastructure';
  if (error instanceof MongoServerSelectionError || error instanceof MongoNetworkError)
    return 'infrastructure';
  // A failed item of a group write has only a code.
  const code = Number((error as { readonly code?: unknown } | undefined)?.code);
  if (OPERATOR_CODES.has(code)) return 'ours';
  if (AWAY_CODES.has(code)) return 'infrastructure';
  if (
    error instanceof MongoError &&
    (error.hasErrorLabel('RetryableWriteError') || /Pool|Topology/.test(error.name))
  ) {
    return 'infrastructure';
  }
  return 'transient';
}

export function classOfHandOver(
  handOver: Exclude<HandOver, { result: 'accepted' | 'aborted' }>,
  blame: Blame,
): FailureClass {
  if (blame === 'relay') return 'relay';
  switch (handOver.result) {
    case 'ambiguous':
      return 'ambiguous';
    case 'unreachable':
      return 'transient';
    case 'refused':
      return handOver.failure;
  }
}
