/** Counts what became of a partner's requests, in parts of a period, within a bounded time. */
import type { Collection } from 'mongodb';
import { firstIdAt } from '../platform/stores/ids.ts';
import { tooLong, tookTooLong } from '../platform/stores/mongo-read.ts';
import type { State } from './states.ts';
import { live, type SubmissionRecord } from './submission.ts';

export interface KindGroup {
  /** From 0 on, since the period began. */
  readonly part: number;
  readonly state: State;
  readonly status: number;
  /** Field and code of each reason, with a blank between them. */
  readonly why: readonly string[];
  /** Of what was turned away. */
  readonly address: string | null;
  readonly key?: string | null;
  readonly count: number;
}

export interface KindsAsked {
  readonly partner: string;
  readonly since: Date;
  readonly until: Date;
  readonly partMs: number;
  /** For all reads together. */
  readonly withinMs: number;
}

/** More come only where a partner's addresses change with each request. */
const GROUPS_IN_ONE = 10_000;
/** A wider range is read again in parts. */
const ONE_WITHIN_MS = 700;
const NARROWEST_MS = 1_000;
const NARROWED_BY = 16;
const WIDENED_BY = 4;
/** Less is not worth a query. */
const LEAST_READ_MS = 20;

/** Reads ranges of ids from the newest on; `from` tells how far it came in its time. */
export async function countKinds(
  submissions: Collection<SubmissionRecord>,
  { since, until, withinMs, ...asked }: KindsAsked,
): Promise<{ readonly groups: KindGroup[]; readonly from: Date }> {
  const endsAt = performance.now() + withinMs;
  const groups: KindGroup[] = [];
  let from = until;
  let backMs = asked.partMs;
  while (from > since) {
    const leftMs = Math.floor(endsAt - performance.now());
    if (leftMs < LEAST_READ_MS) break;
    const start = new Date(Math.max(since.getTime(), from.getTime() - backMs));
    try {
      const maxTimeMS = Math.min(leftMs, ONE_WITHIN_MS);
      groups.push(
        ...(await kindsIn(submissions, { ...asked, since, start, end: from, maxTimeMS })),
      );
      from = start;
      backMs *= WIDENED_BY;
    } catch (error) {
      if (!tookTooLong(error)) throw error;
      if (backMs <= NARROWEST_MS) break;
      backMs = Math.max(NARROWEST_MS, backMs / NARROWED_BY);
    }
  }
  return { groups, from };
}

async function kindsIn(
  submissions: Collection<SubmissionRecord>,
  range: Pick<KindsAsked, 'partner' | 'since' | 'partMs'> & {
    readonly start: Date;
    readonly end: Date;
    readonly maxTimeMS: number;
  },
): Promise<KindGroup[]> {
  const { partner: partnerId, since, partMs, maxTimeMS } = range;
  const [$gte, $lt] = [firstIdAt('req', range.start), firstIdAt('req', range.end)];
  const part = { $floor: { $divide: [{ $subtract: ['$receivedAt', since] }, partMs] } };
  const why = {
    $map: {
      input: { $ifNull: ['$reasons', []] },
      as: 'one',
      in: { $concat: [{ $ifNull: ['$$one.field', ''] }, ' ', '$$one.code'] },
    },
  };
  const isTurnedAway = { $in: ['$state', ['malformed', 'refused']] };
  const ofThese = (field: string) => ({ $cond: [isTurnedAway, field, null] });
  const kind = { part, state: '$state', status: '$httpStatus', why };
  const whose = { address: ofThese('$remoteIp'), key: ofThese('$keyId') };
  const groups = await submissions
    .aggregate<{ _id: Omit<KindGroup, 'count'>; count: number }>(
      [
        { $match: { ...live, partnerId, _id: { $gte, $lt } } },
        { $group: { _id: { ...kind, ...whose }, count: { $sum: 1 } } },
        { $limit: GROUPS_IN_ONE },
      ],
      { maxTimeMS },
    )
    .toArray();
  // A cut answer would count too few.
  if (groups.length === GROUPS_IN_ONE) throw tooLong();
  return groups.map(({ _id, count }) => ({ ..._id, count }));
}
