/**
 * Who came first: finds an open request of the same applicant that was received before another one
 * and has no account yet: by EIN, and by e-mail address once it was claimed. Requests whose partner
 * is on hold do not count.
 */
import type { Collection, Db, Filter } from 'mongodb';
import type { Applicant } from '../application/fields.ts';
import { testEndings } from '../application/sandbox-endings.ts';
import type { Mode } from '../partner/key-terms.ts';
import { joinCalls, JOINED_AT_MOST, type JoinedAnswer } from '../platform/stores/mongo-joined.ts';
import { unlessTooLong } from '../platform/stores/mongo-read.ts';
import { dueFields, type DueRecord } from './due-work.ts';
import { claimedBefore, live, submissionCollection, type SubmissionRecord } from './submission.ts';

/** `unknown`: too many requests name the applicant to look through them in time. */
export type Earlier = DueRecord | 'unknown' | undefined;

/** Of all that ask together. */
const READ_AT_MOST = 500;
const READ_MS = 2_000;

/** Some of these tests wait for an hour. */
const withEnding = { 'applicant.ein': { $in: [...testEndings.keys()] } };
/** For `$nin`, FerretDB would read the whole index of EINs once for each value. */
const judgedTests: Filter<SubmissionRecord> = { test: true, $nor: [withEnding] };

type Asker = Pick<SubmissionRecord, '_id' | 'partnerId'> & { readonly applicant: Applicant };
type OpenRequest = DueRecord & Pick<SubmissionRecord, 'applicant'>;

export class EarlierRequests {
  readonly #collection: Collection<SubmissionRecord>;
  readonly #mode: Mode;
  readonly #onHold: () => readonly string[];
  readonly #ask = joinCalls<Asker, Earlier>(JOINED_AT_MOST, (askers) => this.#askTogether(askers));

  constructor(options: {
    readonly db: Db;
    readonly mode?: Mode;
    readonly onHold: () => readonly string[];
  }) {
    this.#collection = submissionCollection(options.db);
    this.#mode = options.mode ?? {};
    this.#onHold = options.onHold;
  }

  /** `applicant` is normalised. A test comes only after tests of its partner without an ending. */
  of(asker: Asker): Promise<Earlier> {
    return this.#ask(asker);
  }

  async #askTogether(askers: readonly Asker[]): Promise<JoinedAnswer<Earlier>[]> {
    const found = await this.#read(askers, READ_AT_MOST);
    const isWhole = found !== undefined && found.length < READ_AT_MOST;
    const answers = new Map<Asker, JoinedAnswer<Earlier>>();
    for (const asker of askers) {
      const before = found?.filter((other) => this.#isBefore(other, asker)) ?? [];
      const [answer] = before.toSorted((one, other) => (one._id < other._id ? -1 : 1));
      if (answer !== undefined || isWhole) answers.set(asker, { answer });
    }
    // What many name hides what others name, who then ask without them.
    const rest = askers.filter((asker) => !answers.has(asker));
    const later =
      rest.length < askers.length && rest.length > 0
        ? await this.#askTogether(rest)
        : await Promise.all(rest.map((asker) => this.#askAlone(asker)));
    for (const [index, asker] of rest.entries()) answers.set(asker, later[index]!);
    return askers.map((asker) => answers.get(asker)!);
  }

  async #askAlone(asker: Asker): Promise<JoinedAnswer<Earlier>> {
    const found = await this.#read([asker], 1, this.#before(asker));
    return { answer: found === undefined ? 'unknown' : found[0] };
  }

  #isBefore(other: OpenRequest, asker: Asker): boolean {
    const { email, ein } = asker.applicant;
    const isSame =
      (ein !== undefined && other.applicant?.ein === ein) ||
      (email !== undefined && other.applicant?.email === email && other.version > 0);
    const isAmong = this.#mode.test !== true || other.partnerId === asker.partnerId;
    return isSame && isAmong && other._id < asker._id;
  }

  /** With `dueAt`, FerretDB reads what is open; without it, all ids that are less. */
  #before({ _id, partnerId = '' }: Asker): Filter<SubmissionRecord> {
    // As a plain condition, FerretDB would read all tests of the partner.
    const among = this.#mode.test ? { $nor: [withEnding, { partnerId: { $ne: partnerId } }] } : {};
    return { _id: { $lt: _id }, dueAt: { $exists: true }, ...among };
  }

  /** Undefined if it takes too long. */
  async #read(
    askers: readonly Asker[],
    limit: number,
    before: Filter<SubmissionRecord> = {},
  ): Promise<OpenRequest[] | undefined> {
    // FerretDB uses a partial index only if its condition stands in the query.
    const isOneOf = (key: 'email' | 'ein') => ({
      $exists: true,
      $in: askers.flatMap(({ applicant }) => applicant[key] ?? []),
    });
    const onHold = this.#onHold();
    const filter: Filter<SubmissionRecord> = {
      ...(this.#mode.test ? judgedTests : live),
      state: 'recorded',
      ...(onHold.length === 0 ? {} : { partnerId: { $nin: [...onHold] } }),
      ...before,
      $or: [
        { 'applicant.ein': isOneOf('ein') },
        { 'applicant.email': isOneOf('email'), ...claimedBefore },
      ],
    };
    const projection = { ...dueFields, applicant: 1 };
    const found = await this.#collection
      .find(filter, { projection, maxTimeMS: READ_MS })
      .limit(limit)
      .batchSize(limit)
      .toArray()
      .catch(unlessTooLong);
    return found as unknown as OpenRequest[] | undefined;
  }
}
