/** Finds the records nobody works on and queues them: what heals lost hints, an emptied Redis and killed workers. */
import type { Clock } from '../platform/clock.ts';
import { pause } from '../platform/deadline.ts';
import type { Logger } from '../platform/log.ts';
import { hintFor, type Hint, type QueueName } from '../queue/job.ts';
import { openStates, type OpenState } from '../submission/states.ts';
import type { DueRecord, SubmissionStore } from '../submission/submission-store.ts';
import {
  FIRST_SIGHT_GRACE_MS,
  RECONCILE_EVERY_MS,
  RECONCILE_MAX_WAITING,
  RECONCILE_PAGE,
  REQUEUED_AGAIN_MS,
} from './limits.ts';

export interface ReconcileTools {
  readonly store: SubmissionStore;
  readonly clock: Clock;
  readonly log: Logger;
  readonly requeued: { inc(labels: { state: string }, value: number): void };
  readonly unknown: { set(value: number): void };
  /** Jobs waiting in `queue`; rejects while Redis is away. */
  waiting(queue: QueueName): Promise<number>;
  /** Whether this process's worker of `queue` waits out an outage: more jobs would only pile up. */
  paused(queue: QueueName): boolean;
  sendHints(queue: QueueName, hints: readonly Hint[]): Promise<void>;
}

/** Which queue works on a state. */
const queueOf: Readonly<Record<OpenState, QueueName>> = { recorded: 'applications', account_created: 'notifications' };

/**
 * One round for one state. A record that nobody ever claimed is only marked at first sight, so that a withdrawal that is
 * under way comes first; everything else is queued. Rejects when a store is away; the next round starts afresh.
 * True when it did a full page, so that more may be due.
 */
async function reconcileState(state: OpenState, tools: ReconcileTools): Promise<boolean> {
  const due = await tools.store.findDue(state, RECONCILE_PAGE);
  const isNew = (record: DueRecord): boolean => record.version === 0 && record.firstSeenAt === undefined;
  await tools.store.lookAgain(due.filter(isNew), FIRST_SIGHT_GRACE_MS, { firstSeen: true });

  const ready = due.filter((record) => !isNew(record));
  const queue = queueOf[state];
  const wanted = ready.length > 0 && !tools.paused(queue) && (await tools.waiting(queue)) < RECONCILE_MAX_WAITING;
  if (wanted) {
    await tools.sendHints(queue, ready.map(hintFor));
    await tools.store.lookAgain(ready, REQUEUED_AGAIN_MS, { firstSeen: false });
    tools.requeued.inc({ state }, ready.length);
    tools.log.info({ queue, count: ready.length }, 'queued records nobody was working on');
  }
  return due.length === RECONCILE_PAGE && (wanted || ready.length < due.length);
}

/** One round for all open states; a failure in one does not keep the others from theirs. True when more may be due. */
export async function reconcileOnce(tools: ReconcileTools): Promise<boolean> {
  const rounds = await Promise.allSettled(openStates.map((state) => reconcileState(state, tools)));
  const failed = rounds.find((round) => round.status === 'rejected');
  if (failed !== undefined) throw failed.reason;
  tools.unknown.set(await tools.store.countUnknownDue(RECONCILE_PAGE));
  return rounds.some((round) => round.status === 'fulfilled' && round.value);
}

/** Runs rounds until `signal` aborts. */
export async function reconcileForever(tools: ReconcileTools, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    const more = await reconcileOnce(tools).catch((error: unknown) => {
      tools.log.debug({ err: error }, 'reconcile round failed');
      return false;
    });
    // After an outage a whole backlog may be due: it is queued page after page, as fast as the workers take it.
    if (!more) await pause(RECONCILE_EVERY_MS * (0.8 + 0.4 * Math.random()), signal);
  }
}
