/** Every failure of the background work gets a class, and this one table maps it to what is done. Pure. */
import { MongoError, MongoNetworkError, MongoServerSelectionError } from 'mongodb';
import type { HandOver } from '../mail/mailer.ts';
import { DeadlineError, backoffMs } from '../platform/deadline.ts';
import { ATTEMPT_BACKOFF, MAX_AMBIGUOUS, MAX_ATTEMPTS, OURS_RETRY_MS, PARKED_RETRY_MS } from './limits.ts';

/** Every class of failure, and what it is in words for people. */
export const failureMeanings = {
  permanent: "the applicant's mail server said no for good",
  transient: 'it may work another time',
  infrastructure: "a part of ours is away; nobody's attempt is counted",
  ours: "our sender, settings or relay policy is refused; nobody's attempt is counted",
  ambiguous: 'the mail may or may not have gone out',
} as const;
export type FailureClass = keyof typeof failureMeanings;
export const failureClasses = Object.keys(failureMeanings) as readonly FailureClass[];

export type Verdict =
  | { readonly do: 'retry'; readonly delayMs: number }
  | { readonly do: 'park'; readonly delayMs: number; readonly pauseWorker: boolean }
  | { readonly do: 'finish'; readonly event: 'bounce' | 'give_up' };

/** What to do about the failure of an attempt. `attempts` and `ambiguous` count what went before, this one included. */
export function verdict(
  failure: FailureClass,
  counts: { readonly attempts: number; readonly ambiguous: number },
  random: () => number = Math.random,
): Verdict {
  switch (failure) {
    case 'permanent':
      return { do: 'finish', event: 'bounce' };
    case 'infrastructure':
      return { do: 'park', delayMs: PARKED_RETRY_MS, pauseWorker: true };
    case 'ours':
      return { do: 'park', delayMs: OURS_RETRY_MS, pauseWorker: false };
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

/** The class of an error thrown while working with the database; anything unknown is worth another try. */
export function classOfError(error: unknown): FailureClass {
  if (error instanceof DeadlineError) return 'infrastructure';
  if (error instanceof MongoServerSelectionError || error instanceof MongoNetworkError) return 'infrastructure';
  if (error instanceof MongoError && (error.hasErrorLabel('RetryableWriteError') || /Pool|Topology/.test(error.name))) {
    return 'infrastructure';
  }
  return 'transient';
}

/** Status details (RFC 3463) that blame the mail system, the network, the protocol or a policy: not the recipient. */
const OUR_FAULT = /^5\.[3457]\./;
const PERMANENT_FROM = 500;

/**
 * The class of a hand-over that did not succeed. A 5xx is the recipient's only at RCPT or after the content, and only
 * if its enhanced code does not say otherwise. `relayAnswers` is what a probe found after the relay had taken us in: if
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
      // At MAIL FROM the recipient has not been named yet: it is about our sender, whatever the code.
      if (handOver.phase === 'mail') return relayAnswers ? 'ours' : 'infrastructure';
      if (handOver.code < PERMANENT_FROM) return 'transient';
      return OUR_FAULT.test(handOver.enhancedCode ?? '') ? 'ours' : 'permanent';
  }
}
