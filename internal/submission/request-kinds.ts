/** Counts what became of a partner's requests, in parts of a period, within a bounded time. */
import type { Collection } from 'mongodb';
import { firstIdAt, timeOfId } from '../platform/stores/ids.ts';
import { rangesBack, tooLong, tookTooLong } from '../platform/stores/mongo-read.ts';
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
/** A range that takes longer is read again in parts. */
const ONE_WITHIN_MS = 700;

/** Reads from the newest on; `from` tells how far it came in its time. */
export async function countKinds(
  submissions: Collection<SubmissionRecord>,
  asked: KindsAsked,
): Promise<{ readonly groups: KindGroup[]; readonly from: Date }> {
  const { since, until, partMs, withinMs } = asked;
  const [from, before] = [firstIdAt('req', since), firstIdAt('req', until)];
  const groups: KindGroup[] = [];
  const next = await rangesBack(
    { prefix: 'req', before, from, withinMs, firstMs: partMs, narrowedAfterMs: ONE_WITHIN_MS },
    async (range, maxTimeMS) => {
      groups.push(...(await kindsIn(submissions, asked, range, maxTimeMS)));
      return false;
    },
  ).catch((error: unknown) => {
    if (tookTooLong(error)) return before;
    throw error;
  });
  return { groups, from: next === undefined ? since : timeOfId(next)! };
}

async function kindsIn(
  submissions: Collection<SubmissionRecord>,
  { partner: partnerId, since, partMs }: KindsAsked,
  range: { readonly $gte: string; readonly $lt: string },
  maxTimeMS: number,
): Promise<KindGroup[]> {
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
        { $match: { ...live, partnerId, _id: range } },
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
