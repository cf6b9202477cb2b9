/** How much work waits in the database, and since when: asked of small indexes, whatever the collection's size. */
import type { Collection } from 'mongodb';
import { BACKLOG_COUNTED, BACKLOG_LOOKED_AT, BACKLOG_TIMEOUT_MS } from './limits.ts';
import { openStates, type OpenState } from './states.ts';
import type { SubmissionRecord } from './submission.ts';

/** States that somebody has to do something about. */
export const backlogStates = [...openStates, 'dead_lettered'] as const;

export interface Backlog {
  /** Records by state, counted up to `BACKLOG_COUNTED`. */
  readonly records: Readonly<Record<(typeof backlogStates)[number], number>>;
  /** When the one that has waited longest was received; undefined where none waits. */
  readonly oldestReceivedAt: Readonly<Record<OpenState, Date | undefined>>;
}

/** Rejects when the database is away or takes longer than `BACKLOG_TIMEOUT_MS` for one question. */
export async function readBacklog(requests: Collection<SubmissionRecord>): Promise<Backlog> {
  const counts = backlogStates.map(
    async (state) => [state, await requests.countDocuments(indexed(state), options)] as const,
  );
  const ages = openStates.map(async (state) => [state, await oldest(requests, state)] as const);
  // Waited for together: a promise left behind by the failure of another would end the process.
  const [records, oldestReceivedAt] = await Promise.all([Promise.all(counts), Promise.all(ages)]);
  return {
    records: Object.fromEntries(records) as Backlog['records'],
    oldestReceivedAt: Object.fromEntries(oldestReceivedAt) as Backlog['oldestReceivedAt'],
  };
}

const options = { limit: BACKLOG_COUNTED, maxTimeMS: BACKLOG_TIMEOUT_MS };

/** What the partial indexes hold: open records have a `dueAt`, dead letters an index of their own. */
function indexed(state: (typeof backlogStates)[number]) {
  return state === 'dead_lettered' ? { state } : { state, dueAt: { $exists: true } };
}

/**
 * No index is in order of `receivedAt`: one more on every insert costs the door a seventh of its speed. But whoever has
 * waited longest stands at an end of the order of `dueAt`: in front when nobody has come to it yet, at the back when it
 * has failed most often and waits longest for its next attempt. Exact while no more wait than are looked at.
 */
async function oldest(requests: Collection<SubmissionRecord>, state: OpenState): Promise<Date | undefined> {
  const ends = await Promise.all(
    ([1, -1] as const).map((order) =>
      requests
        .find(indexed(state), { projection: { receivedAt: 1 }, maxTimeMS: BACKLOG_TIMEOUT_MS })
        .sort({ dueAt: order })
        .limit(BACKLOG_LOOKED_AT)
        .toArray(),
    ),
  );
  const times = ends.flat().map(({ receivedAt }) => receivedAt.getTime());
  return times.length === 0 ? undefined : new Date(times.reduce((one, other) => Math.min(one, other)));
}
