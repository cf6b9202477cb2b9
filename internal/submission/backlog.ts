/**
 * How much work waits in the database, and since when. Reads small indexes only, whatever the
 * collection's size.
 */
import type { Collection, Db, Filter } from 'mongodb';
import { later, systemClock } from '../platform/clock.ts';
import {
  BACKLOG_BY_PARTNER,
  BACKLOG_COUNTED,
  BACKLOG_LOOKED_AT,
  BACKLOG_TIMEOUT_MS,
  BOUNCED_WINDOW_MS,
} from './limits.ts';
import { openStates, type OpenState } from './states.ts';
import { submissionCollection, type SubmissionRecord } from './submission.ts';

/** States with work ahead: for a worker, or for an operator. */
export const backlogStates = [...openStates, 'dead_lettered'] as const;

/** Records of partners on hold are counted apart: they wait because somebody wants it. */
export interface Backlog {
  /** Records by state, counted up to `BACKLOG_COUNTED`. */
  readonly records: Readonly<Record<(typeof backlogStates)[number], number>>;
  /** Open records of partners on hold, counted up to `BACKLOG_COUNTED`. */
  readonly onHold: number;
  /** Bounces reported in the last `BOUNCED_WINDOW_MS`. */
  readonly bounced: number;
  /** When the oldest record was received; undefined if there is none. */
  readonly oldestReceivedAt: Readonly<Record<OpenState, Date | undefined>>;
}

/** Rejects when the database is away or takes longer than `BACKLOG_TIMEOUT_MS` for one question. */
export async function readBacklog(
  db: Db,
  partnersOnHold: readonly string[] = [],
  now = systemClock.now(),
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
  // Awaited together: an unhandled rejection would end the process.
  const bouncedSince = { bouncedAt: { $gt: later(now, -BOUNCED_WINDOW_MS) } };
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
  const held = { state: { $in: [...openStates] }, dueAt: { $exists: true } } as const;
  return requests.countDocuments({ ...held, partnerId: { $in: [...partnersOnHold] } }, options);
}

/**
 * Open records by partner, the partner with most first; counts `BACKLOG_BY_PARTNER` of them.
 * Rejects as `readBacklog`.
 */
export async function readPartnerBacklog(
  db: Db,
): Promise<{ readonly partnerId: string; readonly records: number }[]> {
  return submissionCollection(db)
    .aggregate<{ partnerId: string; records: number }>(
      [
        { $match: { state: { $in: [...openStates] }, dueAt: { $exists: true } } },
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

/**
 * What the partial indexes hold: open records have a `dueAt`, dead letters an index of their own.
 */
function indexed(state: (typeof backlogStates)[number]) {
  return state === 'dead_lettered' ? { state } : { state, dueAt: { $exists: true } };
}

/**
 * No index is in order of `receivedAt`: one more index on every insert costs ingest a seventh of
 * its speed. The oldest record is first by `dueAt` if never tried, last if its back-off is longest.
 * Exact while both ends reach all records.
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
