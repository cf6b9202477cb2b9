/** Removes former data of released accounts when a completed request would expire. */
import type { Db } from 'mongodb';
import { bounded } from '../platform/mongo-read.ts';
import { accountCollection } from './account.ts';

const RELEASED_PAGE = 500;

export async function forgetReleased(db: Db, until: Date): Promise<boolean> {
  const accounts = accountCollection(db);
  const over = await accounts
    .find(
      { released: { $exists: true }, releasedAt: { $lte: until } },
      { projection: { _id: 1 }, ...bounded },
    )
    .limit(RELEASED_PAGE)
    .toArray();
  if (over.length > 0) {
    const ids = over.map(({ _id }) => _id);
    await accounts.updateMany({ _id: { $in: ids } }, { $unset: { released: true } });
  }
  return over.length === RELEASED_PAGE;
}
