/** Counts the live work that waits in the database, from indexes as small as the backlog. */
import type { Collection, Db, Filter } from 'mongodb';
import { later } from '../platform/process/clock.ts';
import {
  BACKLOG_TIMEOUT_MS,
  live,
  liveOpen,
  submissionCollection,
  type SubmissionRecord,
} from './submission.ts';
import { backlogStates, isOpen, openStates, type OpenState } from './states.ts';

const BOUNCED_WINDOW_MS = 86_400_000;
const BACKLOG_COUNTED = 100_000;
/** Counting by partner reads documents. */
const BACKLOG_BY_PARTNER = 20_000;
/** Read from each end of `dueAt` to find the oldest record. */
export const BACKLOG_LOOKED_AT = 500;

export type Backlog = Awaited<ReturnType<typeof readBacklog>>;

/** Each count stops at `BACKLOG_COUNTED`. */
export async function readBacklog(db: Db, now: Date, partnersOnHold: readonly string[] = []) {
  const requests = submissionCollection(db);
  const count = (filter: Filter<SubmissionRecord>): Promise<number> =>
    requests.countDocuments(filter, {
      limit: BACKLOG_COUNTED,
      maxTimeMS: BACKLOG_TIMEOUT_MS,
    });
  const held = partnersOnHold.length === 0 ? undefined : [...partnersOnHold];
  const others = held === undefined ? {} : { partnerId: { $nin: held } };
  const open = (state: OpenState) => ({ ...liveOpen, state, ...others });
  const since = later(now, -BOUNCED_WINDOW_MS);
  // An unhandled rejection would end the process, so all are awaited together.
  const [records, oldestReceivedAt, bounced, onHold] = await Promise.all([
    forEach(backlogStates, (state) => count(isOpen(state) ? open(state) : { ...live, state })),
    forEach(openStates, (state) => oldest(requests, open(state))),
    count({ ...live, bouncedAt: { $exists: true, $gt: since } }),
    held === undefined ? 0 : count({ ...liveOpen, partnerId: { $in: held } }),
  ]);
  return { bounced, onHold, records, oldestReceivedAt };
}

async function forEach<Key extends string, Value>(
  keys: readonly Key[],
  read: (key: Key) => Promise<Value>,
): Promise<Record<Key, Value>> {
  const pairs = keys.map(async (key) => [key, await read(key)] as const);
  return Object.fromEntries(await Promise.all(pairs)) as Record<Key, Value>;
}

/** Counts the first `BACKLOG_BY_PARTNER` open records by partner. */
export async function readPartnerBacklog(
  db: Db,
): Promise<{ readonly partnerId: string; readonly records: number }[]> {
  return submissionCollection(db)
    .aggregate<{ partnerId: string; records: number }>(
      [
        { $match: liveOpen },
        { $limit: BACKLOG_BY_PARTNER },
        { $group: { _id: '$partnerId', records: { $sum: 1 } } },
        { $sort: { records: -1 } },
        { $project: { _id: 0, partnerId: '$_id', records: 1 } },
      ],
      { maxTimeMS: BACKLOG_TIMEOUT_MS },
    )
    .toArray();
}

/**
 * An index on `receivedAt` would slow inserts by a seventh, so both ends of `dueAt` are read: the
 * oldest record is first if never tried, last if its back-off is longest. This is exact for up to
 * 1,000 records.
 */
async function oldest(
  requests: Collection<SubmissionRecord>,
  filter: Filter<SubmissionRecord>,
): Promise<Date | undefined> {
  const ends = await Promise.all(
    ([1, -1] as const).map((order) =>
      requests
        .find(filter, { projection: { receivedAt: 1 }, maxTimeMS: BACKLOG_TIMEOUT_MS })
        .sort({ dueAt: order })
        .limit(BACKLOG_LOOKED_AT)
        .toArray(),
    ),
  );
  const times = ends.flat().map(({ receivedAt }) => receivedAt.getTime());
  return times.length === 0 ? undefined : new Date(Math.min(...times));
}
