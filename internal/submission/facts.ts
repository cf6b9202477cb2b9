/** How a record keeps facts: in words for people, and in codes for programs. */
import type { Fault } from '../platform/process/fault.ts';
import { defined } from '../platform/process/defined.ts';
import { openStates, type Event, type State } from './states.ts';

/** Why an attempt failed. */
type FailureCode =
  | 'account_missing'
  | 'account_released'
  | 'account_changed'
  /** `of` the relay's code and status. */
  | 'mail_refused'
  /** `of` what the mailer tells, such as `ECONNRESET`. */
  | 'mail_unanswered'
  | 'mails_unknown'
  | 'relay_unasked'
  /** `of` what the mailer tells, such as `EAUTH AUTH PLAIN 535`. */
  | 'relay_unusable'
  /** `of` the name of the error. */
  | 'step_failed'
  | 'workers_died';

/** Its words hold no personal data, because support reads them. */
export type Fact = Fault<
  | FailureCode
  /** `of` the order's `--why`. */
  | 'resent_with_many'
  /** Of a move that needs no code of its own. */
  | Event
>;

/** Older versions have stored the words alone. */
export type StoredFact = Pick<Fact, 'words'> & Partial<Fact>;

/** Words alone have the event of the move as their code. */
export const asFact = (event: Event, reason: string | Fact): Fact =>
  typeof reason === 'string' ? { code: event, words: reason } : reason;

export const asReason = ({ words: reason, code, of }: Fact) => ({
  reason,
  code,
  ...defined({ of }),
});

interface LastError {
  readonly lastError?: string;
  readonly lastFact?: Fact;
}

export const asLastError = (fact: Fact): LastError => ({ lastError: fact.words, lastFact: fact });

/** In other states the last error is an earlier attempt's. */
export const WITH_ERROR: readonly State[] = [...openStates, 'undeliverable', 'dead_lettered'];

/** An older version may have written the last error since. */
export const lastFactOf = ({ lastError: words, lastFact }: LastError): StoredFact | undefined =>
  words === undefined || lastFact?.words === words ? lastFact : { words };

/** The same in an aggregation. */
export const LAST_FACT = {
  $cond: [{ $eq: ['$lastFact.words', '$lastError'] }, '$lastFact', { words: '$lastError' }],
} as const;
