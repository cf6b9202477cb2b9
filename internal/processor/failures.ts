/** Every failure of the background work gets a class, and this one table maps it to what is done. Pure. */
import { MongoError, MongoNetworkError, MongoServerSelectionError } from 'mongodb';
import type { HandOver } from '../mail/mailer.ts';
import { faultOf, type Fault } from '../mail/relay-answers.ts';
import { DeadlineError, backoffMs, jittered } from '../platform/deadline.ts';
import { NotDurableError } from '../platform/mongo.ts';
import {
  ATTEMPT_BACKOFF,
  BUSY_RETRY,
  MAX_AMBIGUOUS,
  MAX_ATTEMPTS,
  OURS_RETRY,
  PARKED_AT_MOST_MS,
  PARKED_RETRY_MS,
} from './limits.ts';

/** Every class of failure, and what it is in words for people. */
export const failureMeanings = {
  permanent: "the applicant's mail server said no for good",
  transient: 'it may work another time',
  infrastructure: "a part of ours is away; nobody's attempt is counted",
  ours: "our sender, settings, rights or disk is refused or full; nobody's attempt is counted",
  busy: "the relay or the mailbox takes no mail now; nobody's attempt is counted",
  ambiguous: 'the mail may or may not have gone out',
} as const;
export type FailureClass = keyof typeof failureMeanings;
export const failureClasses = Object.keys(failureMeanings) as readonly FailureClass[];

export type Verdict =
  | { readonly do: 'retry'; readonly delayMs: number }
  | { readonly do: 'park'; readonly delayMs: number; readonly pauseWorker: boolean }
  | { readonly do: 'finish'; readonly event: 'bounce' | 'give_up' };

/** What a verdict depends on besides the class. */
export interface SoFar {
  /** Failed attempts and possible mails, this attempt's included. */
  readonly attempts: number;
  readonly ambiguous: number;
  /** Since the request came into its state. */
  readonly waitedMs: number;
}

/** Classes that count no attempt. */
const uncounted: ReadonlySet<FailureClass> = new Set(['infrastructure', 'ours', 'busy']);

/** What to do about the failure of an attempt. */
export function verdict(failure: FailureClass, counts: SoFar, random: () => number = Math.random): Verdict {
  const { waitedMs } = counts;
  if (uncounted.has(failure) && waitedMs >= PARKED_AT_MOST_MS) return { do: 'finish', event: 'give_up' };
  switch (failure) {
    case 'permanent':
      return { do: 'finish', event: 'bounce' };
    case 'infrastructure':
      return { do: 'park', delayMs: PARKED_RETRY_MS, pauseWorker: true };
    case 'ours':
    case 'busy': {
      const { share, firstMs, capMs } = failure === 'ours' ? OURS_RETRY : BUSY_RETRY;
      const delay = Math.min(capMs, Math.max(firstMs, waitedMs * share));
      return { do: 'park', delayMs: jittered(delay, ATTEMPT_BACKOFF.jitter, random), pauseWorker: false };
    }
    case 'ambiguous':
      return counts.ambiguous >= MAX_AMBIGUOUS
        ? { do: 'finish', event: 'give_up' }
        : { do: 'retry', delayMs: backoffMs(counts.ambiguous, ATTEMPT_BACKOFF, random) };
    case 'transient':
      return counts.attempts >= MAX_ATTEMPTS
        ? { do: 'finish', event: 'give_up' }
        : { do: 'retry', delayMs: backoffMs(counts.attempts, ATTEMPT_BACKOFF, random) };
  }
}

/**
 * What a server answers while its set elects, has no majority, shuts down or is overloaded; or, as a mere InternalError (1),
 * while the database behind it is away, as PostgreSQL behind FerretDB.
 */
const AWAY_CODES = new Set([1, 6, 7, 50, 64, 89, 91, 189, 262, 9_001, 10_058, 10_107, 11_600, 11_602, 13_435, 13_436]);
/** What an operator has to mend: no right, a wrong password, a full disk or quota, a write concern the set cannot meet. */
const OPERATOR_CODES = new Set([11, 13, 18, 79, 100, 8_000, 14_031]);

/** The class of an error thrown while working with the database; anything unknown is worth another try. */
export function classOfError(error: unknown): FailureClass {
  if (error instanceof DeadlineError || error instanceof NotDurableError) return 'infrastructure';
  if (error instanceof MongoServerSelectionError || error instanceof MongoNetworkError) return 'infrastructure';
  // An item of a group write that failed alone comes as its code, not as an error of the driver.
  const code = Number((error as { readonly code?: unknown } | undefined)?.code);
  if (OPERATOR_CODES.has(code)) return 'ours';
  if (AWAY_CODES.has(code)) return 'infrastructure';
  if (error instanceof MongoError && (error.hasErrorLabel('RetryableWriteError') || /Pool|Topology/.test(error.name))) {
    return 'infrastructure';
  }
  return 'transient';
}

/**
 * The class of a hand-over that did not succeed. `relayAnswers` is what a probe found after the relay had taken us in: if
 * it is well, a dropped envelope is this mail's fault and counts as an attempt, so that one poisonous recipient cannot
 * stop all mail.
 */
export function classOfHandOver(
  handOver: Exclude<HandOver, { result: 'accepted' | 'aborted' }>,
  relayAnswers: boolean,
): FailureClass {
  switch (handOver.result) {
    case 'ambiguous':
      return 'ambiguous';
    case 'unreachable':
      return handOver.connected && relayAnswers ? 'transient' : 'infrastructure';
    case 'refused':
      return relayAnswers ? classOf[faultOf(handOver)] : 'infrastructure';
  }
}

const classOf = { recipient: 'permanent', ours: 'ours', busy: 'busy' } as const satisfies Record<Fault, FailureClass>;
