/** Reads what is due into the line: retries whose job was lost, and records nobody works on. */
import type { Clock } from '../platform/clock.ts';
import { defined } from '../platform/defined.ts';
import type { DueRecord, DueWork } from '../submission/due-work.ts';
import { FIRST_SIGHT_GRACE_MS } from '../submission/limits.ts';
import type { WorkerMoves } from '../submission/worker-moves.ts';
import type { Holds } from './follow-holds.ts';
import type { Lane, Line, Work } from './line.ts';
import { stepOf } from './process-submission.ts';

interface ReconcileTools {
  readonly due: Pick<DueWork, 'read' | 'readTests' | 'noteFirstSight'>;
  readonly line: Pick<Line, 'put' | 'isLow' | 'busy'>;
  readonly store: Pick<WorkerMoves, 'takesWrites'>;
  readonly holds: Pick<Holds, 'partners'>;
  readonly clock: Pick<Clock, 'monotonicMs'>;
}

export class Reconcile {
  readonly #tools: ReconcileTools;
  #turnedAtMs: number;
  /** Until writes have been durable for a while, withdrawals are late. */
  #durableSinceMs: number | undefined;
  #more: readonly Lane[] = [];

  constructor(tools: ReconcileTools) {
    this.#tools = tools;
    this.#turnedAtMs = tools.clock.monotonicMs();
  }

  /** A process that neither reads what is due nor has work in hand must be started again. */
  faults(deadlineMs: number): string[] {
    const { line, clock } = this.#tools;
    const idleMs = clock.monotonicMs() - this.#turnedAtMs;
    if (line.busy || idleMs < deadlineMs) return [];
    return [`nothing was read for ${Math.round(idleMs / 1_000)} s, and no work is in hand`];
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
    const without = { withoutPartners: holds.partners() };
    const { records: live, full } = await due.read(without);
    const records = [...live, ...(line.isLow('test') ? await due.readTests(without) : [])];
    const fresh = records.filter(isFresh);
    await due.noteFirstSight(fresh);
    const durableMs = clock.monotonicMs() - (this.#durableSinceMs ?? Infinity);
    const withdrawalsMayBeLate = durableMs < FIRST_SIGHT_GRACE_MS;
    const ready = records.filter(
      (record) => !isFresh(record) && (record.version > 0 || !withdrawalsMayBeLate),
    );
    // Records left out would fill the next page, too.
    const leftOut = fresh.length + ready.length < records.length;
    this.#more = leftOut ? [] : full.map((state) => stepOf[state]);
    line.put(ready.map(workOf));
    return this.wanted;
  }
}

function isFresh({ version, firstSeenAt }: DueRecord): boolean {
  return version === 0 && firstSeenAt === undefined;
}

function workOf(record: DueRecord): Work {
  const { _id: requestId, version, partnerId = '', test, state, dueAt, claimedUntil } = record;
  const lost = version === 0 || claimedUntil !== undefined;
  return {
    requestId,
    version,
    partnerId,
    ...defined({ test }),
    step: stepOf[state],
    dueAt: dueAt ?? new Date(0),
    ...(lost ? { lost } : {}),
  };
}
