/**
 * Finds the records that are due, at a cost that does not grow with the backlog.
 *
 * Not every store takes the order of a sort from an index: to give the oldest page, FerretDB reads all that match. So a
 * query asks only up to an instant that moves on in steps, as wide as the records are dense. It always asks from the
 * beginning of time, so nothing due is missed; what lies before a step was handed out, or belongs to the page wanted.
 */
import type { Collection } from 'mongodb';
import type { Clock } from '../platform/clock.ts';
import { unlessTooLong } from '../platform/mongo-read.ts';
import {
  BACKLOG_TIMEOUT_MS,
  DUE_LOOK_TIMEOUT_MS,
  DUE_LOOKS,
  DUE_NARROWED_BY,
  DUE_SHARE,
  DUE_START_MS,
  DUE_STEP_MS,
  DUE_TIMEOUT_MS,
} from './limits.ts';
import { openStates, type OpenState } from './states.ts';
import { RECORD_SCHEMA, type SubmissionRecord } from './submission.ts';

/** What reconcile needs of an overdue record. */
export type DueRecord = Pick<
  SubmissionRecord,
  '_id' | 'state' | 'version' | 'dueAt' | 'dueAnyway' | 'firstSeenAt' | 'traceparent' | 'partnerId'
>;

/** The index holds only records that have a `dueAt`; a lower bound tells every planner that no others are asked for. */
const ANY_TIME = new Date(0);

/** How far a state has been looked through. */
interface Progress {
  upTo: number;
  stepMs: number;
}

export class DueRecords {
  readonly #collection: Collection<SubmissionRecord>;
  readonly #clock: Clock;
  readonly #progress: Record<OpenState, Progress>;

  constructor(collection: Collection<SubmissionRecord>, clock: Clock) {
    this.#collection = collection;
    this.#clock = clock;
    const start = (): Progress => ({ upTo: clock.now().getTime() - DUE_START_MS, stepMs: Infinity });
    this.#progress = { recorded: start(), account_created: start() };
  }

  /**
   * The oldest due records of `state`, at most `limit`, without those of a newer schema; `more` where younger ones may be
   * due, too. What a caller leaves due is found again.
   */
  async find(state: OpenState, limit: number): Promise<{ records: DueRecord[]; more: boolean }> {
    const progress = this.#progress[state];
    let records: DueRecord[] = [];
    for (let look = 0; look < DUE_LOOKS; look += 1) {
      const now = this.#clock.now().getTime();
      // Never more than a share of what is left, so that the first step into a dense backlog is a small part of it.
      const step = Math.min(progress.stepMs, Math.max(DUE_STEP_MS, (now - progress.upTo) * DUE_SHARE));
      const upTo = Math.min(now, progress.upTo + step);
      const found = await this.#oldest(state, new Date(upTo), limit, step);
      if (found === undefined) {
        progress.stepMs = Math.max(DUE_STEP_MS, step / DUE_NARROWED_BY);
        continue;
      }
      records = found;
      const full = records.length === limit;
      progress.upTo = full ? (records.at(-1)?.dueAt?.getTime() ?? upTo) : upTo;
      if (full) progress.stepMs = Math.max(1, step / 2);
      else if (upTo === now) progress.stepMs = DUE_STEP_MS;
      else if (records.length < limit / 2) progress.stepMs *= 2;
      if (upTo === now || records.length >= limit / 2) return { records, more: full || upTo < now };
    }
    return { records, more: true };
  }

  /** Undefined where a step that can be shorter took too long: on its way it met the beginning of a long backlog. */
  async #oldest(state: OpenState, upTo: Date, limit: number, stepMs: number): Promise<DueRecord[] | undefined> {
    const shorter = stepMs > DUE_STEP_MS;
    const reading = this.#collection
      .find(
        { state, dueAt: { $gt: ANY_TIME, $lte: upTo }, schema: { $lte: RECORD_SCHEMA } },
        {
          projection: { state: 1, version: 1, dueAt: 1, dueAnyway: 1, firstSeenAt: 1, traceparent: 1, partnerId: 1 },
          maxTimeMS: shorter ? DUE_LOOK_TIMEOUT_MS : DUE_TIMEOUT_MS,
        },
      )
      .sort({ dueAt: 1 })
      .limit(limit)
      .batchSize(limit)
      .toArray();
    return shorter ? unlessTooLong(reading) : reading;
  }

  /**
   * Due records that this version does not understand: an unknown state, or a newer schema among the `limit` oldest of an
   * open state. No worker of this version moves those, so they become the oldest: it is enough to count as far as all
   * states have been looked through.
   */
  async countUnknown(limit: number): Promise<number> {
    const upTo = Math.min(...Object.values(this.#progress).map((progress) => progress.upTo));
    const due = { $gt: ANY_TIME, $lte: new Date(upTo) };
    const known = openStates.toSorted();
    // The states between those we know, as ranges of the index.
    const between = [...known, undefined].map((state, index) => ({
      ...(index === 0 ? {} : { $gt: known[index - 1] }),
      ...(state === undefined ? {} : { $lt: state }),
    }));
    const options = { limit, maxTimeMS: BACKLOG_TIMEOUT_MS };
    const states = between.map((state) => this.#collection.countDocuments({ state, dueAt: due }, options));
    const schemas = known.map((state) =>
      this.#collection.countDocuments({ state, dueAt: due, schema: { $gt: RECORD_SCHEMA } }, options),
    );
    const counts = await Promise.all([...states, ...schemas]);
    return Math.min(
      limit,
      counts.reduce((sum, count) => sum + count, 0),
    );
  }
}
