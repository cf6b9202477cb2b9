/** Maps each class of failure to its verdict: put back, retry or finish. */
import { MongoError, MongoNetworkError, MongoServerSelectionError } from 'mongodb';
import type { HandOver } from '../mail/mailer.ts';
import type { Blame } from '../mail/mail-gate.ts';
import type { Fault } from '../mail/relay-answers.ts';
import { DeadlineError, jittered } from '../platform/deadline.ts';
import { NotDurableError } from '../platform/mongo.ts';
import { AMBIGUOUS_WAITS_MS, BACKED_OFF_AT_MOST_MS, BACK_OFFS, BACK_OFF_JITTER } from './limits.ts';

/** Only `transient` counts an attempt. */
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

type EndingClass = Exclude<FailureClass, 'infrastructure' | 'relay'>;

export type Verdict =
  /** Counts nothing. */
  | { readonly kind: 'put_back' }
  | { readonly kind: 'retry'; readonly delayMs: number }
  | { readonly kind: 'finish'; readonly event: 'bounce' | 'give_up'; readonly reason: EndingClass };

export interface SoFar {
  /** Includes this attempt's e-mail. */
  readonly ambiguous: number;
  /** Excludes holds and outages. */
  readonly backedOffMs: number;
}

export function verdict(
  failure: FailureClass,
  soFar: SoFar,
  random: () => number = Math.random,
): Verdict {
  switch (failure) {
    case 'permanent':
      return { kind: 'finish', event: 'bounce', reason: failure };
    case 'crashed':
      return giveUp(failure);
    case 'infrastructure':
    case 'relay':
      return { kind: 'put_back' };
    case 'ambiguous': {
      const waitMs = AMBIGUOUS_WAITS_MS[Math.max(0, soFar.ambiguous - 1)];
      return waitMs === undefined ? giveUp(failure) : retryIn(waitMs, random);
    }
    case 'transient':
    case 'ours':
    case 'busy':
    case 'throttled':
      return backOff(failure, soFar, random);
  }
}

function giveUp(reason: EndingClass): Verdict {
  return { kind: 'finish', event: 'give_up', reason };
}

function backOff(
  failure: keyof typeof BACK_OFFS,
  { backedOffMs }: SoFar,
  random: () => number,
): Verdict {
  if (backedOffMs >= BACKED_OFF_AT_MOST_MS) return giveUp(failure);
  const { share, firstMs, capMs } = BACK_OFFS[failure];
  return retryIn(Math.min(capMs, Math.max(firstMs, backedOffMs * share)), random);
}

function retryIn(delayMs: number, random: () => number): Verdict {
  return { kind: 'retry', delayMs: jittered(delayMs, BACK_OFF_JITTER, random) };
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
