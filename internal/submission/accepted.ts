/** Tells reconcile that records were answered 202: for when no hint can. */
import type { Db } from 'mongodb';
import type { Clock } from '../platform/clock.ts';
import { updateInOrder } from '../platform/mongo.ts';
import { submissionCollection } from './submission.ts';

/**
 * Makes the records due at once, as ones whose withdrawal nobody has to wait for. Only for records
 * that were answered 202: those are never withdrawn. Rejects when the database is away; reconcile
 * then finds them half a minute later.
 */
export async function markAccepted(
  db: Db,
  accepted: readonly { readonly requestId: string }[],
  clock: Clock,
): Promise<void> {
  const now = clock.now();
  const ids = accepted.map(({ requestId }) => requestId);
  const unclaimed = { version: 0, state: 'recorded' } as const;
  await updateInOrder(submissionCollection(db), [
    { ids, q: unclaimed, u: { $set: { dueAt: now, firstSeenAt: now } } },
  ]);
}
