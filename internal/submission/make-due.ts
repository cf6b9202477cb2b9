/** Makes accepted records due immediately when no hint can be sent. */
import type { Db } from 'mongodb';
import type { Clock } from '../platform/clock.ts';
import { updateInOrder } from '../platform/mongo.ts';
import { touchOf } from './move-of.ts';
import { submissionCollection } from './submission.ts';

export async function makeDue(
  db: Db,
  accepted: readonly { readonly requestId: string }[],
  clock: Clock,
): Promise<void> {
  const now = clock.now();
  const ids = accepted.map(({ requestId }) => requestId);
  const q = touchOf('make_due', {}, now)!;
  const u = { $set: { dueAt: now, firstSeenAt: now } };
  await updateInOrder(submissionCollection(db), [{ ids, q, u }]);
}
