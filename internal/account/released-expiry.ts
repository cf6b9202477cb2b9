/** Removes what a released account was made for once its request is past its retention, too. */
import type { Db } from 'mongodb';
import { bounded } from '../platform/mongo-read.ts';
import { accountCollection } from './account.ts';

/** Accounts in one round: an operator releases each by hand, so they are few. */
const RELEASED_PAGE = 500;

/** One page of accounts released at `until` or before; true when more may be left. */
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
