/** Makes accepted records due immediately when no hint can be sent. */
import type { Db } from 'mongodb';
import type { Clock } from '../platform/clock.ts';
import { updateInOrder } from '../platform/mongo.ts';
import { submissionCollection } from './submission.ts';

export async function makeDue(
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
