/**
 * Finds recorded applications that nobody works on and queues them: what heals lost hints, an
 * emptied Redis and killed workers. While Redis is away they go straight to the workers of this
 * process.
 */
import type { Clock } from '../platform/clock.ts';
import { pause } from '../platform/deadline.ts';
import type { Logger } from '../platform/log.ts';
import type { HintsInHand } from '../queue/hints-in-hand.ts';
import { hintFor, type Hint } from '../queue/job.ts';
import type { DueRecord } from '../submission/due-records.ts';
import type { WorkerMoves } from '../submission/worker-moves.ts';
import type { ProcessorMetrics } from '../telemetry/metrics.ts';
import type { DurableSince } from './durable-since.ts';
import type { Holds } from './follow-holds.ts';
import {
  FIRST_SIGHT_GRACE_MS,
  RECONCILE_EVERY_MS,
  RECONCILE_MAX_WAITING,
  RECONCILE_OLDEST,
  RECONCILE_PAGE,
  REQUEUED_AGAIN_MS,
  UNKNOWN_EVERY_MS,
} from './limits.ts';

export interface ReconcileTools {
  readonly store: WorkerMoves;
  readonly durable: DurableSince;
  readonly holds: Pick<Holds, 'partners'>;
  readonly clock: Clock;
  readonly log: Logger;
  readonly requeued: ProcessorMetrics['reconcileRequeued'];
  readonly unknown: Pick<ProcessorMetrics['reconcileUnknown'], 'set'>;
  /** Jobs that wait; rejects while Redis is away. */
  waiting(): Promise<number>;
  /**
   * The worker of this process: while it waits out an outage it gets nothing, because jobs would
   * only pile up.
   */
  readonly worker: Pick<HintsInHand, 'paused' | 'room' | 'take'>;
  /** Why this process's clock may not judge what is due; empty when it may. */
  clockFaults(): readonly string[];
  /** Rejects while Redis is away. */
  sendHints(hints: readonly Hint[]): Promise<void>;
}

/**
 * Whether the queue takes more: not while the worker waits out an outage, nor while it has enough.
 */
async function isWanted(tools: ReconcileTools): Promise<boolean> {
  const { worker } = tools;
  if (worker.paused) return false;
  return tools.waiting().then(
    (jobs) => jobs < RECONCILE_MAX_WAITING,
    // Without Redis the worker of this process takes what it has room for.
    () => worker.room > 0,
  );
}

/**
 * One round. A record that nobody ever claimed is only marked at first sight, and then waits for
 * the grace, and until writes have been durable for as long, so that a withdrawal that is under way
 * comes first; everything else is queued. Rejects when the database is away; the next round starts
 * afresh. True when it handed out what it found and more may be due.
 */
export async function reconcileOnce(tools: ReconcileTools): Promise<boolean> {
  await tools.durable.look();
  if (tools.clockFaults().length > 0) return false;
  const wanted = await isWanted(tools);
  const due = await tools.store.findDue(RECONCILE_PAGE, tools.holds.partners());
  const isNew = (record: DueRecord): boolean =>
    record.version === 0 && record.firstSeenAt === undefined;
  const fresh = due.filter(isNew);
  await tools.store.lookAgain(fresh, FIRST_SIGHT_GRACE_MS, { firstSeen: true });

  const withdrawalsMayBeLate = tools.durable.lastsMs < FIRST_SIGHT_GRACE_MS;
  const ready = due.filter(
    (record) => !isNew(record) && (record.version > 0 || !withdrawalsMayBeLate),
  );
  if (!wanted) {
    await takeOldest(ready, tools);
    return false;
  }
  const handed = await handOut(ready, tools);
  if (handed.length > 0) {
    await tools.store.lookAgain(handed, REQUEUED_AGAIN_MS, { firstSeen: false });
    tools.requeued.inc(handed.filter(wasLost).length);
    tools.log.info({ count: handed.length }, 'queued records nobody was working on');
  }
  // What is left stays due, and the next page would begin with it.
  return due.length === RECONCILE_PAGE && fresh.length + handed.length === due.length;
}

/**
 * Whether it is due because a hint or a worker was lost, not because the time of its next attempt
 * has come.
 */
function wasLost({ version, heldUntil }: DueRecord): boolean {
  return version === 0 || heldUntil !== undefined;
}

/**
 * While the queue is full, a record whose hint was lost would wait until it is not, which an
 * overload puts off for ever. So the worker of this process takes the oldest past the queue. A
 * record whose hint waits there is claimed once all the same.
 */
async function takeOldest(
  ready: readonly DueRecord[],
  { worker, store }: ReconcileTools,
): Promise<void> {
  const oldest = ready.slice(0, Math.min(RECONCILE_OLDEST, worker.room));
  worker.take(oldest.map(hintFor));
  await store.lookAgain(oldest, REQUEUED_AGAIN_MS, { firstSeen: false });
}

/**
 * Queues the records, or gives some to the worker of this process where Redis cannot take them;
 * those it found work for.
 */
async function handOut(
  ready: readonly DueRecord[],
  tools: ReconcileTools,
): Promise<readonly DueRecord[]> {
  if (ready.length === 0) return ready;
  try {
    await tools.sendHints(ready.map(hintFor));
    return ready;
  } catch (error) {
    tools.log.debug({ err: error }, 'reconcile works without Redis');
    const { worker } = tools;
    // All processors see the same page: each takes another part of it.
    const count = Math.min(worker.room, ready.length);
    const from = Math.floor(Math.random() * (ready.length - count + 1));
    const mine = ready.slice(from, from + count);
    worker.take(mine.map(hintFor));
    return mine;
  }
}

/** Shows how many due records this version does not understand. */
export async function countUnknown({
  store,
  unknown,
}: Pick<ReconcileTools, 'store' | 'unknown'>): Promise<void> {
  unknown.set(await store.countUnknownDue(RECONCILE_PAGE));
}

/** Runs rounds until `signal` aborts. */
export async function reconcileForever(tools: ReconcileTools, signal: AbortSignal): Promise<void> {
  let countAt = 0;
  const round = async (): Promise<boolean> => {
    const more = await reconcileOnce(tools);
    if (tools.clock.monotonicMs() < countAt) return more;
    await countUnknown(tools);
    countAt = tools.clock.monotonicMs() + UNKNOWN_EVERY_MS;
    return more;
  };
  while (!signal.aborted) {
    const more = await round().catch((error: unknown) => {
      tools.log.debug({ err: error }, 'reconcile round failed');
      return false;
    });
    // After an outage a whole backlog may be due: it is queued page after page, as fast as the
    // workers take it.
    if (!more) await pause(RECONCILE_EVERY_MS * (0.8 + 0.4 * Math.random()), signal);
  }
}
