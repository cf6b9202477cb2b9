/** Reads what is due into the line: retries whose job was lost, and records nobody works on. */
import type { DueRecord, DueWork } from '../submission/due-work.ts';
import { FIRST_SIGHT_GRACE_MS } from '../submission/limits.ts';
import type { DurableSince } from './durable-since.ts';
import type { Holds } from './follow-holds.ts';
import type { Line, Work } from './line.ts';
import { stepOf } from './process-submission.ts';

interface ReconcileTools {
  readonly due: Pick<DueWork, 'read' | 'noteFirstSight'>;
  readonly line: Pick<Line, 'put' | 'isLow'>;
  readonly durable: DurableSince;
  readonly holds: Pick<Holds, 'partners'>;
}

export class Reconcile {
  readonly #tools: ReconcileTools;
  #more: readonly Work['step'][] = [];

  constructor(tools: ReconcileTools) {
    this.#tools = tools;
  }

  /** More is due, and the line has room for it. */
  get wanted(): boolean {
    return this.#more.some((step) => this.#tools.line.isLow(step));
  }

  /**
   * An unclaimed record is worked on only after a period of durable writes, so that a pending
   * withdrawal comes first.
   */
  async round(): Promise<boolean> {
    const { due, line, durable, holds } = this.#tools;
    await durable.look();
    const { records, full } = await due.read({ withoutPartners: holds.partners() });
    const fresh = records.filter(isFresh);
    await due.noteFirstSight(fresh);
    const withdrawalsMayBeLate = durable.lastsMs < FIRST_SIGHT_GRACE_MS;
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
  const { _id: requestId, version, partnerId = '', state, dueAt, claimedUntil } = record;
  const lost = version === 0 || claimedUntil !== undefined;
  return {
    requestId,
    version,
    partnerId,
    step: stepOf[state],
    dueAt: dueAt ?? new Date(0),
    ...(lost ? { lost } : {}),
  };
}
