/** Reads what is due into the line: retries whose job was lost, and records nobody works on. */
import type { Clock } from '../platform/process/clock.ts';
import type { Fault } from '../platform/process/fault.ts';
import type { DueRecord, DueWork } from '../submission/due-work.ts';
import { FIRST_SIGHT_GRACE_MS } from '../submission/submission.ts';
import type { WorkerMoves } from '../submission/worker-moves.ts';
import type { Holds } from './outage-gate.ts';
import { DUE_FIRST, workOf, type Lane, type Line, type Work } from './line.ts';
import { stepOf } from './step.ts';

/** With 15 s to the first sight and 15 s of grace, a lost job is repaired within 35 s. */
export const RECONCILE_EVERY_MS = 2_500;

interface ReconcileDueTools {
  readonly due: Pick<DueWork, 'read' | 'readTests' | 'noteFirstSight' | 'endWait'>;
  readonly line: Pick<Line, 'put' | 'hasten' | 'isLow' | 'busy'>;
  readonly store: Pick<WorkerMoves, 'takesWrites' | 'releaseInDoubt'>;
  readonly holds: Pick<Holds, 'partners'>;
  readonly clock: Pick<Clock, 'monotonicMs' | 'now'>;
}

export class Reconcile {
  readonly #tools: ReconcileDueTools;
  #turnedAtMs: number;
  /** Until writes have been durable for a while, withdrawals are late. */
  #durableSinceMs: number | undefined;
  #more: readonly Lane[] = [];

  constructor(tools: ReconcileDueTools) {
    this.#tools = tools;
    this.#turnedAtMs = tools.clock.monotonicMs();
  }

  /** A process that neither reads what is due nor has work in hand must be started again. */
  faults(deadlineMs: number): Fault[] {
    const { line, clock } = this.#tools;
    const idleMs = clock.monotonicMs() - this.#turnedAtMs;
    if (line.busy || idleMs < deadlineMs) return [];
    const words = `nothing was read for ${Math.round(idleMs / 1_000)} s, and no work is in hand`;
    return [{ code: 'nothing_read', words }];
  }

  /** More is due, and the line has room for it. */
  get wanted(): boolean {
    return this.#more.some((lane) => this.#tools.line.isLow(lane));
  }

  /**
   * An unclaimed record is worked on only after a period of durable writes, so that a pending
   * withdrawal comes first.
   */
  async round(): Promise<boolean> {
    const { due, line, store, holds, clock } = this.#tools;
    this.#turnedAtMs = clock.monotonicMs();
    const durable = await store.takesWrites().catch(() => false);
    this.#durableSinceMs = durable ? (this.#durableSinceMs ?? clock.monotonicMs()) : undefined;
    // If it fails, the next round tries again.
    if (durable) await store.releaseInDoubt().catch(() => {});
    const without = { withoutPartners: holds.partners() };
    const { records: live, full } = await due.read(without);
    const records = [...live, ...(line.isLow('test') ? await due.readTests(without) : [])];
    const fresh = records.filter(isFresh);
    await due.noteFirstSight(fresh);
    const ready = records.filter((record) => !isFresh(record) && this.#isSettled(record));
    // Records left out would fill the next page, too.
    const leftOut = fresh.length + ready.length < records.length;
    this.#more = leftOut ? [] : full.map((state) => stepOf[state]);
    line.put(ready.map(readWork));
    return this.wanted;
  }

  /**
   * Brings a record forward for which another one waits: once due, it is worked on next. One that
   * waits itself looks again at once, or a chain of waits would grow with each link. A claim, the
   * back-off of a failure and the time for a withdrawal stay as they are.
   */
  async hasten(record: DueRecord): Promise<void> {
    const { due, line, clock } = this.#tools;
    // What a job brought was accepted.
    if (line.hasten(record._id)) return;
    if (record.dueAt === undefined) return;
    if (record.dueAt > clock.now()) {
      if (!isWaiting(record)) return;
      await due.endWait(record);
    }
    if (isFresh(record)) await due.noteFirstSight([record]);
    else if (this.#isSettled(record)) line.put([{ ...readWork(record), dueAt: DUE_FIRST }]);
  }

  /** A withdrawal of an unclaimed record comes first; it is late until writes have been durable. */
  #isSettled({ version }: DueRecord): boolean {
    const { clock } = this.#tools;
    const durableMs = clock.monotonicMs() - (this.#durableSinceMs ?? Infinity);
    return version > 0 || durableMs >= FIRST_SIGHT_GRACE_MS;
  }
}

function isWaiting({ waitsSince, backedOffMs, claimedUntil }: DueRecord): boolean {
  return waitsSince !== undefined && backedOffMs === undefined && claimedUntil === undefined;
}

function isFresh({ version, firstSeenAt }: DueRecord): boolean {
  return version === 0 && firstSeenAt === undefined;
}

function readWork(record: DueRecord): Work {
  const { version, claimedUntil, state, dueAt = DUE_FIRST } = record;
  const lost = version === 0 || claimedUntil !== undefined;
  return { ...workOf(record, stepOf[state], dueAt), ...(lost ? { lost } : {}) };
}
