/** Removes raw bodies after their retention, because a TTL index cannot delete a single field. */
import type { Db } from 'mongodb';
import type { Clock } from '../platform/clock.ts';
import { updateInOrder } from '../platform/mongo.ts';
import { bounded } from '../platform/mongo-read.ts';
import { BODY_EXPIRY_PAGE } from './limits.ts';
import { submissionCollection } from './submission.ts';

/** True if more may be due. */
export async function removeDueBodies(db: Db, clock: Clock): Promise<boolean> {
  const requests = submissionCollection(db);
  // FerretDB uses a partial index only if its condition stands in the query.
  const due = { bodyUntil: { $exists: true, $lte: clock.now() } };
  const over = await requests
    .find(due, { projection: { _id: 1 }, ...bounded })
    .sort({ bodyUntil: 1 })
    .limit(BODY_EXPIRY_PAGE)
    .toArray();
  if (over.length > 0) {
    const ids = over.map(({ _id }) => _id);
    await updateInOrder(requests, [
      { ids, q: due, u: { $unset: { body: true, bodyUntil: true } } },
    ]);
  }
  return over.length === BODY_EXPIRY_PAGE;
}
