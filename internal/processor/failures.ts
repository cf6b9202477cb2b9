/**
 * Every failure of the background work gets a class, and this one table maps it to what is done.
 * Pure.
 */
import { MongoError, MongoNetworkError, MongoServerSelectionError } from 'mongodb';
import type { HandOver } from '../mail/mailer.ts';
import type { Blame } from '../mail/relay-state.ts';
import type { Fault } from '../mail/relay-answers.ts';
import { DeadlineError, jittered } from '../platform/deadline.ts';
import { NotDurableError } from '../platform/mongo.ts';
import { BACK_OFFS, BACK_OFF_JITTER, BACKED_OFF_AT_MOST_MS, MAX_AMBIGUOUS } from './limits.ts';

/** Every class of failure. Only `transient` counts an attempt. */
export type FailureClass =
  /** The applicant's mail server said no for good. */
  | 'permanent'
  /** It may work another time. */
  | 'transient'
  /** The database is away or takes no writes. */
  | 'infrastructure'
  /** The relay takes no mail at present. */
  | 'relay'
  /** Our sender, settings, rights or disk are refused or full for this record. */
  | 'ours'
  /** The mailbox takes no mail now. */
  | 'busy'
  /** Only mails to this domain or of this partner are turned away now. */
  | 'throttled'
  /** The mail may or may not have gone out. */
  | 'ambiguous'
  /** Its workers ended without a word, several times. */
  | 'crashed';

export type Verdict =
  | { readonly kind: 'put_back' }
  | { readonly kind: 'retry'; readonly delayMs: number }
  | { readonly kind: 'finish'; readonly event: 'bounce' | 'give_up' };

/** What a verdict depends on besides the class. */
export interface SoFar {
  /** Possible mails, this attempt's included. */
  readonly ambiguous: number;
  /** Time the record has waited for its own failures; neither holds nor outages count. */
  readonly backedOffMs: number;
}

/** What to do about the failure of an attempt. */
export function verdict(
  failure: FailureClass,
  soFar: SoFar,
  random: () => number = Math.random,
): Verdict {
  switch (failure) {
    case 'permanent':
      return { kind: 'finish', event: 'bounce' };
    case 'crashed':
      return GIVE_UP;
    case 'infrastructure':
    case 'relay':
      return { kind: 'put_back' };
    case 'ambiguous':
      return soFar.ambiguous >= MAX_AMBIGUOUS ? GIVE_UP : backOff(failure, soFar, random);
    case 'transient':
    case 'ours':
    case 'busy':
    case 'throttled':
      return backOff(failure, soFar, random);
  }
}

const GIVE_UP: Verdict = { kind: 'finish', event: 'give_up' };

function backOff(
  failure: keyof typeof BACK_OFFS,
  { backedOffMs }: SoFar,
  random: () => number,
): Verdict {
  if (backedOffMs >= BACKED_OFF_AT_MOST_MS) return GIVE_UP;
  const { share, firstMs, capMs } = BACK_OFFS[failure];
  const delayMs = Math.min(capMs, Math.max(firstMs, backedOffMs * share));
  return { kind: 'retry', delayMs: jittered(delayMs, BACK_OFF_JITTER, random) };
}

/**
 * What a server answers while its set elects, has no majority, shuts down or is overloaded; or, as
 * a mere InternalError (1), while the database behind it is away, as PostgreSQL behind FerretDB.
 */
const AWAY_CODES = new Set([
  1, 6, 7, 50, 64, 89, 91, 189, 262, 9_001, 10_058, 10_107, 11_600, 11_602, 13_435, 13_436,
]);
/**
 * What an operator has to mend: no right, a wrong password, a full disk or quota, a write concern
 * the set cannot meet.
 */
const OPERATOR_CODES = new Set([11, 13, 18, 79, 100, 8_000, 14_031]);

/**
 * The class of an error thrown while working with the database; anything unknown is worth another
 * try.
 */
export function classOfError(error: unknown): FailureClass {
  if (error instanceof DeadlineError || error instanceof NotDurableError) return 'infrastructure';
  if (error instanceof MongoServerSelectionError || error instanceof MongoNetworkError)
    return 'infrastructure';
  // An item of a group write that failed alone comes as its code, not as an error of the driver.
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

/** The class of a hand-over that did not succeed; `blame` is what the relay's state makes of it. */
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
      return classOf[handOver.fault];
  }
}

const classOf = {
  sender: 'relay',
  capacity: 'throttled',
  recipient: 'permanent',
  ours: 'ours',
  busy: 'busy',
} as const satisfies Record<Fault, FailureClass>;
