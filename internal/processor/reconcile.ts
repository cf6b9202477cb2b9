/**
 * Queues recorded applications that no worker has: after lost hints, an emptied Redis or killed
 * workers. While Redis is away, this process's worker takes them.
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
  waiting(): Promise<number>;
  /** Gets nothing during an outage, or jobs would pile up. */
  readonly worker: Pick<HintsInHand, 'paused' | 'room' | 'take'>;
  sendHints(hints: readonly Hint[]): Promise<void>;
}

async function isWanted(tools: ReconcileTools): Promise<boolean> {
  const { worker } = tools;
  if (worker.paused) return false;
  return tools.waiting().then(
    (jobs) => jobs < RECONCILE_MAX_WAITING,
    () => worker.room > 0,
  );
}

/**
 * True if more may be due. An unclaimed record is queued only after a period of durable writes, so
 * that a pending withdrawal comes first.
 */
export async function reconcileOnce(tools: ReconcileTools): Promise<boolean> {
  await tools.durable.look();
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
  // Records left out would begin the next page.
  return due.length === RECONCILE_PAGE && fresh.length + handed.length === due.length;
}

function wasLost({ version, claimedUntil }: DueRecord): boolean {
  return version === 0 || claimedUntil !== undefined;
}

/** The queue may stay full, so this worker takes the oldest records past it. */
async function takeOldest(
  ready: readonly DueRecord[],
  { worker, store }: ReconcileTools,
): Promise<void> {
  const oldest = ready.slice(0, Math.min(RECONCILE_OLDEST, worker.room));
  worker.take(oldest.map(hintFor));
  await store.lookAgain(oldest, REQUEUED_AGAIN_MS, { firstSeen: false });
}

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
    // All processors see the same page, so each takes another part.
    const count = Math.min(worker.room, ready.length);
    const from = Math.floor(Math.random() * (ready.length - count + 1));
    const mine = ready.slice(from, from + count);
    worker.take(mine.map(hintFor));
    return mine;
  }
}

export async function countUnknown({
  store,
  unknown,
}: Pick<ReconcileTools, 'store' | 'unknown'>): Promise<void> {
  unknown.set(await store.countUnknownDue(RECONCILE_PAGE));
}

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
    // After an outage a whole backlog may be due.
    if (!more) await pause(RECONCILE_EVERY_MS * (0.8 + 0.4 * Math.random()), signal);
  }
}
