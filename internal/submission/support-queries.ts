/** Operators' queries on submissions, bounded in time and number. */
import type { Collection, Db, Document, Filter, FindOptions } from 'mongodb';
import { ownerName } from '../partner/key-terms.ts';
import { later } from '../platform/process/clock.ts';
import { defined } from '../platform/process/defined.ts';
import { firstIdAt, timeOfId } from '../platform/stores/ids.ts';
import {
  bounded,
  newestOf,
  pagesOf,
  rangesBack,
  READ_DEADLINE_MS,
  tooLong,
  unlessTooLong,
} from '../platform/stores/mongo-read.ts';
import {
  idempotencyDigest,
  LAST_FACT,
  WITH_ERROR,
  claimedBefore,
  live,
  liveOpen,
  submissionCollection,
  type StoredFact,
  type SubmissionRecord,
} from './submission.ts';
import { literally, namePattern } from './name-pattern.ts';
import { rateLimitedCollection, type RateLimitedRecord } from './over-limit.ts';
import { isOpen, type State } from './states.ts';

const BODY_PAGE = 100;
const BOUNCED_READ = 1_000;
const COMPLETED_READ = 10_000;
/** If reading an applicant's requests takes longer, all are searched, newest first. */
const FEW_WITHIN_MS = 2_000;
const MINUTE_MS = 60_000;
/** The rate limit's setting allows no longer window. */
const LONGEST_WINDOW_MS = 3_600_000;
/** With windows of a minute, one key at one address makes 10,080 counts of each status a week. */
export const COUNTS_READ = 20_000;
/** A read that takes longer is repeated for a shorter period. */
const COUNTS_WITHIN_MS = 700;
const SHORTER = [1, 16, 256];

export type TurnedAwayCount = Omit<RateLimitedRecord, 'requestIds'>;

export interface Search {
  /** Normalised, like `ein`. */
  readonly email?: string;
  readonly ein?: string;
  /** Of e-mail addresses, in lower case. */
  readonly domain?: string;
  /** How e-mail addresses begin, in lower case. */
  readonly emailStart?: string;
  readonly partner?: string;
  readonly idempotencyKey?: string;
  readonly state?: State;
  /** Part of the business name, or all of it. */
  readonly name?: string;
  readonly wholeName?: boolean;
  /** Part of the last error, or the code of a reason. */
  readonly reason?: string;
  /** A reason's field; with `reason`, one reason must have both. */
  readonly field?: string;
  readonly httpStatus?: number;
  /** Finds requests that were turned away with this key. */
  readonly keyId?: string;
  readonly mode?: 'live' | 'test';
  readonly since?: Date;
  readonly until?: Date;
  /** Finds only requests with a smaller id. */
  readonly before?: string;
}

const withoutBody = { body: 0 } as const;

const checkedFields = {
  state: 1,
  schema: 1,
  httpStatus: 1,
  receivedAt: 1,
  dueAt: 1,
  partnerId: 1,
  expiresAt: 1,
  erasedAt: 1,
  releasedAt: 1,
  accountId: 1,
  history: { $slice: -1 },
  'reasons.code': 1,
} as const;
export type CheckedRecord = Pick<
  SubmissionRecord,
  '_id' | 'reasons' | (keyof typeof checkedFields & keyof SubmissionRecord)
>;

const personalFields = {
  state: 1,
  version: 1,
  claimedUntil: 1,
  test: 1,
  applicant: 1,
  body: 1,
} as const;
export type PersonalRecord = Pick<SubmissionRecord, '_id' | keyof typeof personalFields>;

export type Applied = Pick<SubmissionRecord, '_id' | 'applicant'>;

/** A request with several reasons is in several groups. */
interface TallyGroup {
  readonly state: State;
  readonly partnerId?: string;
  readonly test?: true;
  readonly field?: string;
  readonly code?: string;
  readonly error?: StoredFact;
  readonly count: number;
  readonly newest: string;
}

export class SupportQueries {
  readonly #submissions: Collection<SubmissionRecord>;
  readonly #rateLimited: Collection<RateLimitedRecord>;

  constructor(db: Db) {
    this.#submissions = submissionCollection(db);
    this.#rateLimited = rateLimitedCollection(db);
  }

  async byId(requestId: string): Promise<SubmissionRecord | undefined> {
    return (await this.#submissions.findOne({ _id: requestId }, bounded)) ?? undefined;
  }

  async ofIds(
    ids: readonly string[],
    { bodies }: { readonly bodies: boolean },
  ): Promise<SubmissionRecord[]> {
    return this.#having(ids, bodies ? {} : withoutBody);
  }

  async countOpen(partnerId: string, limit: number): Promise<number> {
    return this.#submissions.countDocuments({ ...liveOpen, partnerId }, { limit, ...bounded });
  }

  /** Live requests whose e-mail came back with this status. */
  async bouncedWith(status: string, since: Date): Promise<Applied[]> {
    const bouncedAt = { $exists: true, $gt: since };
    const lastError = { $regex: literally(`(${status})`) };
    return this.#submissions
      .find({ ...live, bouncedAt, lastError }, { projection: { applicant: 1 }, ...bounded })
      .limit(BOUNCED_READ)
      .toArray();
  }

  /** Up to `limit` of the requests from `first` to `last` that are completed. */
  async countCompleted(first: string, last: string, without: readonly string[], limit: number) {
    const stages = [
      { $match: { _id: { $gte: first, $lte: last, $nin: without } } },
      { $limit: COMPLETED_READ },
      { $match: { ...live, state: 'completed' } },
      { $limit: limit },
      { $count: 'count' },
    ];
    const found = this.#submissions.aggregate<{ count: number }>(stages, bounded);
    return (await found.toArray())[0]?.count ?? 0;
  }

  async idsFrom(prefix: string, limit: number): Promise<string[]> {
    const found = this.#submissions.find(
      { _id: { $gte: prefix, $lt: `${prefix}~` } },
      { projection: { _id: 1 }, limit, ...bounded },
    );
    return (await found.toArray()).map(({ _id }) => _id);
  }

  /**
   * Returns the count that holds the id, else what was turned away within a minute before `at` with
   * ids that were not kept.
   */
  async turnedAway(requestId: string, at: Date) {
    const named = await this.#rateLimited.findOne(
      {
        // The window may begin after the id was made.
        windowStart: { $gt: later(at, -LONGEST_WINDOW_MS), $lte: later(at, MINUTE_MS) },
        requestIds: requestId,
      },
      { projection: { requestIds: 0 }, ...bounded },
    );
    if (named !== null) return { named, unnamed: [] };
    const found = await this.#rateLimited
      .find({ windowStart: { $gt: later(at, -MINUTE_MS), $lte: at } }, bounded)
      .limit(COUNTS_READ)
      .toArray();
    const unnamed = [...Map.groupBy(found, ({ status = 429 }) => status)].map(
      ([status, counts]) => ({
        status,
        limits: [...new Set(counts.flatMap(({ limits = [] }) => limits))],
        count: counts.reduce((sum, { count, requestIds }) => sum + count - requestIds.length, 0),
      }),
    );
    return { unnamed: unnamed.filter(({ count }) => count > 0) };
  }

  /**
   * What was turned away, of all or of one partner's live requests or tests. The returned `from` is `since`, or
   * later if not all could be read in time.
   */
  async turnedAwaySince(since: Date, until: Date, of?: { partner: string; test: boolean }) {
    const whose = of && { partnerId: of.partner, ...(of.test ? { test: true as const } : live) };
    for (const part of SHORTER) {
      const from = later(until, (since.getTime() - until.getTime()) / part);
      const options = { projection: { requestIds: 0 }, maxTimeMS: COUNTS_WITHIN_MS };
      const counts: TurnedAwayCount[] | undefined = await this.#rateLimited
        .find({ ...whose, windowStart: { $gte: from, $lte: until } }, options)
        .sort({ windowStart: -1 })
        .limit(COUNTS_READ)
        .toArray()
        .catch(unlessTooLong);
      const oldest = counts?.[COUNTS_READ - 1];
      if (counts !== undefined) return { counts, from: oldest?.windowStart ?? from };
    }
    return { counts: [], from: until };
  }

  /** Rejects if time runs out before `limit` are found or all are searched. */
  async newest(search: Search, limit: number): Promise<SubmissionRecord[]> {
    const { found, next } = await this.list(search, limit);
    if (found.length < limit && next !== undefined) throw tooLong();
    return found;
  }

  /** Newest first; `next` is the `before` of the next page, also if time ran out. */
  async list(search: Search, limit: number, withinMs = READ_DEADLINE_MS) {
    const { since, until, before, ...rest } = search;
    const filter = filterOf(rest);
    // An index finds an applicant's or a key's requests, which usually are few.
    if (rest.email ?? rest.emailStart ?? rest.ein ?? rest.idempotencyKey) {
      const found = await this.#submissions
        .find(filterOf(search), { projection: withoutBody, maxTimeMS: FEW_WITHIN_MS })
        .sort({ _id: -1 })
        .limit(limit)
        .toArray()
        .catch(unlessTooLong);
      if (found !== undefined) return { found };
    }
    return newestOf(this.#submissions, filter, {
      size: limit,
      prefix: 'req',
      before: before ?? firstAt(until),
      from: firstAt(since),
      withinMs,
      projection: withoutBody,
    });
  }

  pages(
    search: Search,
    { bodies, ...read }: { readonly bodies: boolean } & Pick<FindOptions, 'readPreference'>,
  ): AsyncGenerator<SubmissionRecord[]> {
    const { since, until, ...rest } = search;
    return pagesOf(this.#submissions, filterOf(rest), {
      after: firstAt(since),
      until: firstAt(until),
      ...read,
      ...(bodies ? { size: BODY_PAGE } : { projection: withoutBody }),
    });
  }

  async count(search: Search): Promise<number | undefined> {
    return this.#submissions.countDocuments(filterOf(search), bounded).catch(() => undefined);
  }

  /** Counts requests of at most `limit` kinds, most frequent first. */
  async tally(search: Search, limit: number): Promise<TallyGroup[]> {
    const kind = {
      state: '$state',
      partnerId: '$partnerId',
      test: '$test',
      field: '$reasons.field',
      code: '$reasons.code',
      error: LAST_FACT,
    };
    const groups = await this.#submissions
      .aggregate<{ _id: Omit<TallyGroup, 'count' | 'newest'>; count: number; newest: string }>(
        [
          { $match: filterOf(search) },
          { $unwind: { path: '$reasons', preserveNullAndEmptyArrays: true } },
          { $group: { _id: kind, count: { $sum: 1 }, newest: { $max: '$_id' } } },
          { $sort: { count: -1 } },
          { $limit: limit },
        ],
        bounded,
      )
      .toArray();
    // A missing field is null in a group.
    return groups.map(({ _id, count, newest }) => {
      const given = Object.fromEntries(Object.entries(_id).filter(([, value]) => value !== null));
      return { ...(given as typeof _id), count, newest };
    });
  }

  /** Counts live requests by kind, newest first; `from` says how far back the time sufficed. */
  async kinds(asked: KindsAsked): Promise<{ readonly groups: KindGroup[]; readonly from: Date }> {
    const { since, until, withinMs } = asked;
    const [from, before] = [firstIdAt('req', since), firstIdAt('req', until)];
    // Without a range of ids, the database takes the index of a state that has one.
    const wholeMs = Math.floor(withinMs / 2);
    const isAll = since.getTime() === 0 && wholeMs > 0;
    if (isAll) {
      const whole = await kindsIn(this.#submissions, asked, undefined, wholeMs).catch(
        unlessTooLong,
      );
      if (whole !== undefined) return { groups: whole, from: since };
    }
    const groups: KindGroup[] = [];
    const next = await rangesBack(
      {
        prefix: 'req',
        before,
        from,
        withinMs: isAll ? wholeMs : withinMs,
        firstMs: FIRST_MS,
        narrowedAfterMs: ONE_WITHIN_MS,
      },
      async (range, maxTimeMS) => {
        groups.push(...(await kindsIn(this.#submissions, asked, range, maxTimeMS)));
        return false;
      },
    ).catch((error: unknown) => unlessTooLong(error) ?? before);
    return { groups, from: next === undefined ? since : timeOfId(next)! };
  }

  async *ofApplicant({
    email,
    ein,
  }: Pick<Search, 'email' | 'ein'>): AsyncGenerator<PersonalRecord[]> {
    for (const key of [{ email }, { ein }]) {
      if (Object.values(key)[0] === undefined) continue;
      yield* pagesOf(this.#submissions, filterOf(key as Search), {
        size: BODY_PAGE,
        projection: personalFields,
      });
    }
  }

  personalPages(): AsyncGenerator<PersonalRecord[]> {
    return pagesOf(this.#submissions, {}, { size: BODY_PAGE, projection: personalFields });
  }

  /** Of these, the requests whose bodies are kept. */
  async withBody(ids: readonly string[]): Promise<ReadonlySet<string>> {
    const found = await this.#having(ids, { _id: 1 }, { body: { $exists: true } });
    return new Set(found.map(({ _id }) => _id));
  }

  async about(): Promise<number> {
    return this.#submissions.estimatedDocumentCount(bounded);
  }

  /** Pages through all live records. */
  checkedPages(after: string | undefined): AsyncGenerator<CheckedRecord[]> {
    return pagesOf(this.#submissions, live, { projection: checkedFields, after });
  }

  async checked(ids: readonly string[]): Promise<CheckedRecord[]> {
    return this.#having(ids, checkedFields);
  }

  #having(
    ids: readonly string[],
    projection: Document,
    filter: Filter<SubmissionRecord> = {},
  ): Promise<SubmissionRecord[]> {
    const options = { projection, ...bounded };
    return this.#submissions.find({ _id: { $in: [...ids] }, ...filter }, options).toArray();
  }
}

function filterOf(search: Search): Filter<SubmissionRecord> {
  const { email, ein, partner, state, name, reason, field, httpStatus, keyId, mode } = search;
  const { idempotencyKey: key, wholeName: whole = false, domain, emailStart } = search;
  const either: Filter<SubmissionRecord>[] = [];
  const filter: Record<string, unknown> = defined({
    'applicant.ein': ein,
    partnerId: partner,
    state,
    httpStatus,
    keyId,
  });
  if (domain !== undefined) filter['applicant.email'] = { $regex: `@${literally(domain)}$` };
  // With this condition, MongoDB can use the index requests_due.
  if (state !== undefined && isOpen(state)) filter['dueAt'] = { $exists: true };
  if (mode !== undefined) filter['test'] = mode === 'live' ? live.test : true;
  if (partner !== undefined && key !== undefined) {
    const owners = [partner, ownerName(partner, { test: true })];
    filter['idempotencyDigest'] = { $in: owners.map((owner) => idempotencyDigest(owner, key)) };
  }
  if (name !== undefined)
    filter['applicant.businessName'] = { $regex: namePattern(name, { whole }), $options: 'i' };
  if (field !== undefined)
    filter['reasons'] = { $elemMatch: { field, ...defined({ code: reason }) } };
  else if (reason !== undefined)
    either.push({
      $or: [
        { lastError: { $regex: literally(reason), $options: 'i' } },
        { 'reasons.code': reason },
      ],
    });
  const address = email ?? (emailStart && { $regex: `^${literally(emailStart)}` });
  if (address !== undefined) {
    const unclaimed = { version: 0, state: 'recorded', dueAt: { $exists: true } } as const;
    either.push({
      $or: [unclaimed, claimedBefore].map((when) => ({ 'applicant.email': address, ...when })),
    });
  }
  if (either.length > 0) filter['$and'] = either;
  const ids = defined({ $gte: firstAt(search.since), $lt: search.before ?? firstAt(search.until) });
  if (Object.keys(ids).length > 0) filter['_id'] = ids;
  return filter;
}

function firstAt(date: Date | undefined): string | undefined {
  return date === undefined ? undefined : firstIdAt('req', date);
}

export interface KindGroup {
  /** Null without a known key. */
  readonly partner: string | null;
  readonly state: State;
  readonly status: number;
  /** The last error in states of `WITH_ERROR`, else null. */
  readonly error: StoredFact | null;
  /** Null, like `key`, unless turned away. */
  readonly address: string | null;
  readonly key: string | null;
  readonly count: number;
  readonly oldest: string;
  /** The newest id, as an example. */
  readonly newest: string;
}

type Summed = 'count' | 'oldest' | 'newest';

export interface KindsAsked {
  readonly partner?: string;
  /** All by default. */
  readonly states?: readonly State[];
  readonly since: Date;
  readonly until: Date;
  /** Time for all reads together. */
  readonly withinMs: number;
}

/** More exist only if addresses change with each request. */
const GROUPS_IN_ONE = 10_000;
/** States of recorded requests that were turned away. */
export const TURNED_AWAY = ['malformed', 'refused'] as const satisfies readonly State[];
/** A longer range would be read too slowly for a busy partner. */
const FIRST_MS = 10_800_000;
/** A range that takes longer is read again in parts. */
const ONE_WITHIN_MS = 700;

async function kindsIn(
  submissions: Collection<SubmissionRecord>,
  { partner: partnerId, states }: KindsAsked,
  range: { readonly $gte: string; readonly $lt: string } | undefined,
  maxTimeMS: number,
): Promise<KindGroup[]> {
  const of = (those: readonly State[], field: string | typeof LAST_FACT) => ({
    $cond: [{ $in: ['$state', those] }, { $ifNull: [field, null] }, null],
  });
  const kind = {
    partner: { $ifNull: ['$partnerId', null] },
    state: '$state',
    status: '$httpStatus',
    error: of(WITH_ERROR, LAST_FACT),
  };
  const whose = { address: of(TURNED_AWAY, '$remoteIp'), key: of(TURNED_AWAY, '$keyId') };
  const sums = { count: { $sum: 1 }, oldest: { $min: '$_id' }, newest: { $max: '$_id' } };
  const groups = await submissions
    .aggregate<Pick<KindGroup, Summed> & { _id: Omit<KindGroup, Summed> }>(
      [
        { $match: { ...live, ...defined({ partnerId, state: stateIn(states), _id: range }) } },
        { $group: { _id: { ...kind, ...whose }, ...sums } },
        { $limit: GROUPS_IN_ONE },
      ],
      { maxTimeMS },
    )
    .toArray();
  // The rest is cut off, so counts would be too low.
  if (groups.length === GROUPS_IN_ONE) throw tooLong();
  return groups.map(({ _id, ...counted }) => ({ ..._id, ...counted }));
}

/** The partial index of dead letters needs an equality. */
function stateIn(states: readonly State[] | undefined) {
  return states?.length === 1 ? states[0] : states && { $in: states };
}
