/** Counts the live work that waits in the database, from indexes as small as the backlog. */
import type { Collection, Db, Filter } from 'mongodb';
import { later } from '../platform/clock.ts';
import {
  BACKLOG_BY_PARTNER,
  BACKLOG_COUNTED,
  BACKLOG_LOOKED_AT,
  BACKLOG_TIMEOUT_MS,
  BOUNCED_WINDOW_MS,
} from './limits.ts';
import { backlogStates, openStates, type OpenState } from './states.ts';
import { live, submissionCollection, type SubmissionRecord } from './submission.ts';

/** Each count stops at `BACKLOG_COUNTED`. */
export interface Backlog {
  readonly records: Readonly<Record<(typeof backlogStates)[number], number>>;
  readonly onHold: number;
  readonly bounced: number;
  readonly oldestReceivedAt: Readonly<Record<OpenState, Date | undefined>>;
}

export async function readBacklog(
  db: Db,
  now: Date,
  partnersOnHold: readonly string[] = [],
): Promise<Backlog> {
  const requests = submissionCollection(db);
  const open = (state: OpenState): Filter<SubmissionRecord> => ({
    ...indexed(state),
    ...(partnersOnHold.length === 0 ? {} : { partnerId: { $nin: [...partnersOnHold] } }),
  });
  const counts = backlogStates.map(async (state) => {
    const filter = state === 'dead_lettered' ? indexed(state) : open(state);
    return [state, await requests.countDocuments(filter, options)] as const;
  });
  const ages = openStates.map(
    async (state) => [state, await oldest(requests, open(state))] as const,
  );
  // An unhandled rejection would end the process, so all are awaited together.
  const bouncedSince = {
    ...live,
    bouncedAt: { $exists: true, $gt: later(now, -BOUNCED_WINDOW_MS) },
  };
  const [records, oldestReceivedAt, bounced, onHold] = await Promise.all([
    Promise.all(counts),
    Promise.all(ages),
    requests.countDocuments(bouncedSince, options),
    countOnHold(requests, partnersOnHold),
  ]);
  return {
    bounced,
    onHold,
    records: Object.fromEntries(records) as Backlog['records'],
    oldestReceivedAt: Object.fromEntries(oldestReceivedAt) as Backlog['oldestReceivedAt'],
  };
}

async function countOnHold(
  requests: Collection<SubmissionRecord>,
  partnersOnHold: readonly string[],
): Promise<number> {
  if (partnersOnHold.length === 0) return 0;
  const held = { ...live, state: { $in: [...openStates] }, dueAt: { $exists: true } } as const;
  return requests.countDocuments({ ...held, partnerId: { $in: [...partnersOnHold] } }, options);
}

/** Counts the first `BACKLOG_BY_PARTNER` open records by partner. */
export async function readPartnerBacklog(
  db: Db,
): Promise<{ readonly partnerId: string; readonly records: number }[]> {
  return submissionCollection(db)
    .aggregate<{ partnerId: string; records: number }>(
      [
        { $match: { ...live, state: { $in: [...openStates] }, dueAt: { $exists: true } } },
        { $limit: BACKLOG_BY_PARTNER },
        { $group: { _id: '$partnerId', records: { $sum: 1 } } },
        { $sort: { records: -1 } },
        { $project: { _id: 0, partnerId: '$_id', records: 1 } },
      ],
      { maxTimeMS: BACKLOG_TIMEOUT_MS },
    )
    .toArray();
}

const options = { limit: BACKLOG_COUNTED, maxTimeMS: BACKLOG_TIMEOUT_MS };

/** Matches the partial indexes. */
function indexed(state: (typeof backlogStates)[number]) {
  return state === 'dead_lettered'
    ? { ...live, state }
    : { ...live, state, dueAt: { $exists: true } };
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
  return times.length === 0
    ? undefined
    : new Date(times.reduce((one, other) => Math.min(one, other)));
}
