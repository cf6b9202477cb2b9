/** A record in the group commit and its possible results. */
import { MongoServerSelectionError } from 'mongodb';
import type { Bound } from './idempotency.ts';
import type { SubmissionRecord } from './submission.ts';

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
type NotAccepted = (typeof notAcceptedReasons)[number];

/**
 * - `in_doubt`: sent without a reliable reply, so the record must be withdrawn.
 * - `unknown`: an earlier record may have been adopted, so neither 202 nor 500 is safe.
 * - `Bound`: an earlier record has the same idempotency key.
 */
export type CommitResult =
  | { readonly kind: 'stored' }
  | { readonly kind: 'not_stored' | 'in_doubt' | 'unknown'; readonly reason: NotAccepted }
  | Bound;

export interface Entry {
  readonly record: SubmissionRecord;
  readonly bytes: number;
  readonly deadline: number;
  adopting: boolean;
  settle(result: CommitResult): void;
}

/** Batches written in the same order cannot deadlock. */
export function inKeyOrder(batch: readonly Entry[]): readonly Entry[] {
  if (batch.every(({ record }) => record.idempotencyDigest === undefined)) return batch;
  const digestOf = ({ record }: Entry): string => record.idempotencyDigest ?? '';
  return batch.toSorted((one, other) => (digestOf(one) < digestOf(other) ? -1 : 1));
}

/** The listed errors occur before anything is sent. */
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
