/** Makes records that were answered 202 due at once, for when no hint can be sent. */
import type { Db } from 'mongodb';
import type { Clock } from '../platform/clock.ts';
import { updateInOrder } from '../platform/mongo.ts';
import { submissionCollection } from './submission.ts';

/** On a rejection, reconcile finds the records half a minute later. */
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
