/** Records put straight into the store. */
import type { Collection } from 'mongodb';
import { accountIndexes } from '../../internal/account/account.ts';
import { ensureIndexes } from '../../internal/platform/mongo-indexes.ts';
import { submissionIndexes } from '../../internal/submission/indexes.ts';
import { SUBMISSIONS, type SubmissionRecord } from '../../internal/submission/submission.ts';
import { newRecord } from './records.ts';
import type { TestStores } from './test-stores.ts';

/** A clock that the test moves. It starts at the present time, which TTL indexes use. */
export function newTestClock() {
  let ms = Date.now();
  return {
    now: () => new Date(ms),
    monotonicMs: () => ms,
    advance: (by: number): void => {
      ms += by;
    },
  };
}

/** Makes the processor's indexes, first of all in a test file. */
export async function makeIndexes(stores: TestStores): Promise<Collection<SubmissionRecord>> {
  await ensureIndexes(stores.db, [...submissionIndexes, ...accountIndexes]);
  return stores.db.collection<SubmissionRecord>(SUBMISSIONS);
}

/** A record of ingest, received at `receivedAt` with `fields` as its body. */
export function recordOf(
  fields: object,
  receivedAt: Date,
  more: Partial<SubmissionRecord> = {},
): SubmissionRecord {
  return newRecord({ receivedAt, ...more }, JSON.stringify(fields));
}
