/** A record on its way through group commit, and what may become of it. */
import { MongoServerSelectionError } from 'mongodb';
import type { Bound } from './idempotency.ts';
import type { SubmissionRecord } from './submission.ts';

/** Why a record is not accepted. */
export const notAcceptedReasons = [
  'keys_not_loaded',
  'no_room',
  'withdrawals_pending',
  'timed_out_waiting',
  'timed_out_sent',
  'database_away',
  'no_answer',
  'counts_differ',
  'write_concern',
  'write_error',
  'id_taken',
] as const;
export type NotAccepted = (typeof notAcceptedReasons)[number];

/**
 * The result for one record:
 * - `stored`: majority-committed and journaled;
 * - `not_stored`: certainly not stored (no room, too many withdrawals pending, never sent, or the
 *   database said so);
 * - `in_doubt`: sent, but no trustworthy answer came; it has to be withdrawn;
 * - `unknown`: it is not stored, and the record with its idempotency key may be adopted: neither a
 *   202 nor a 500 is certain to be true;
 * - otherwise its idempotency key is bound to an earlier record.
 */
export type CommitResult =
  | { readonly kind: 'stored' }
  | { readonly kind: 'not_stored' | 'in_doubt' | 'unknown'; readonly reason: NotAccepted }
  | Bound;

export interface Entry {
  readonly record: SubmissionRecord;
  readonly bytes: number;
  readonly deadline: number;
  /**
   * Whether the record that has its idempotency key may be adopted, so that a time-out leaves that
   * unknown.
   */
  adopting: boolean;
  settle(result: CommitResult): void;
}

/** The order in which every process inserts what is unique, so that no two wait for each other. */
export function inKeyOrder(batch: readonly Entry[]): readonly Entry[] {
  if (batch.every(({ record }) => record.idempotencyDigest === undefined)) return batch;
  const digestOf = ({ record }: Entry): string => record.idempotencyDigest ?? '';
  return batch.toSorted((one, other) => (digestOf(one) < digestOf(other) ? -1 : 1));
}

export function once<Arguments extends unknown[]>(
  call: (...values: Arguments) => void,
): (...values: Arguments) => void {
  let called = false;
  return (...values) => {
    if (called) return;
    called = true;
    call(...values);
  };
}

/**
 * Whether any of the batch may have been sent: server selection and getting a connection come
 * before that.
 */
export function wasSent(error: unknown): boolean {
  if (error instanceof MongoServerSelectionError) return false;
  const name = error instanceof Error ? error.name : '';
  return ![
    'MongoPoolClearedError',
    'MongoWaitQueueTimeoutError',
    'MongoPoolClosedError',
    'MongoTopologyClosedError',
  ].includes(name);
}
