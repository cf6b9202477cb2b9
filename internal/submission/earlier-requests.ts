/**
 * Who came first: finds an open request of the same applicant that was received before another one
 * and has no account yet. Requests whose partner is on hold do not count.
 */
import type { Collection, Db, Filter } from 'mongodb';
import type { Applicant } from '../application/fields.ts';
import { testEndings } from '../application/sandbox-endings.ts';
import type { Mode } from '../partner/key-terms.ts';
import { defined } from '../platform/process/defined.ts';
import { joinCalls, type JoinedAnswer } from '../platform/process/batcher.ts';
import { JOINED_AT_MOST } from '../platform/stores/mongo-joined.ts';
import { unlessTooLong } from '../platform/stores/mongo-read.ts';
import { dueFields, type DueRecord } from './due-work.ts';
import { live, submissionCollection, type SubmissionRecord } from './submission.ts';

/** `unknown`: too many requests name the applicant to look through them in time. */
export type Earlier = DueRecord | 'unknown' | undefined;

/** Of all that ask together; with more, each asks for itself. */
const READ_AT_MOST = 500;
const READ_MS = 2_000;

/** Without those whose EIN chooses their ending: some wait for an hour. */
const judgedTests = { test: true, 'applicant.ein': { $nin: [...testEndings.keys()] } } as const;

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
    const answers = askers.map(async (asker): Promise<JoinedAnswer<Earlier>> => {
      const before = found?.filter((other) => this.#isBefore(other, asker)) ?? [];
      const [earlier] = before.toSorted((one, other) => (one._id < other._id ? -1 : 1));
      const isWhole = found !== undefined && found.length < READ_AT_MOST;
      if (earlier !== undefined || isWhole) return { answer: earlier };
      const alone = await this.#read([asker], 1, this.#before(asker));
      return { answer: alone === undefined ? 'unknown' : alone[0] };
    });
    return Promise.all(answers);
  }

  #isBefore(other: OpenRequest, asker: Asker): boolean {
    const { email, ein } = asker.applicant;
    const isSame =
      (email !== undefined && other.applicant?.email === email) ||
      (ein !== undefined && other.applicant?.ein === ein);
    const isAmong = this.#mode.test !== true || other.partnerId === asker.partnerId;
    return isSame && isAmong && other._id < asker._id;
  }

  /** With `dueAt`, FerretDB reads what is open; without it, all ids that are less. */
  #before({ _id, partnerId }: Asker): Filter<SubmissionRecord> {
    const among = this.#mode.test ? defined({ partnerId }) : {};
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
      $or: [{ 'applicant.email': isOneOf('email') }, { 'applicant.ein': isOneOf('ein') }],
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
