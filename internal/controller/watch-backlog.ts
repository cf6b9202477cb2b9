/** Exports how much work waits. */
import type { Db } from 'mongodb';
import type { PartnerHolds } from '../partner/flags.ts';
import type { Clock } from '../platform/process/clock.ts';
import type { Logger } from '../platform/process/log.ts';
import { jobStates, type JobState } from '../queue/job.ts';
import type { OldQueue } from '../queue/enqueue.ts';
import { readBacklog, readPartnerBacklog, type Backlog } from '../submission/due-work.ts';
import { backlogStates, openStates } from '../submission/states.ts';
import { PartnerLabels, type ControllerMetrics } from '../telemetry/metrics.ts';
import type { TrafficCounter } from '../traffic/traffic-counter.ts';
import type { LeaderLoop } from './leadership.ts';

const MS_PER_SECOND = 1_000;

interface BacklogTools {
  readonly db: Db;
  readonly holds: Pick<PartnerHolds, 'list'>;
  readonly queues: { counts(): Promise<Readonly<Record<JobState, number>>> };
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: ControllerMetrics;
  readonly traffic: Pick<TrafficCounter, 'waiting'>;
}

export function watchBacklog(tools: BacklogTools): LeaderLoop {
  const { db, holds, clock, metrics, traffic } = tools;
  const partnerLabels = new PartnerLabels();
  let last: Backlog | undefined;
  const showRecords = async (): Promise<void> => {
    const onHold = (await holds.list()).map(({ _id }) => _id);
    last = await readBacklog(db, clock.now(), onHold);
    for (const state of backlogStates) metrics.records.set({ state }, last.records[state]);
    for (const state of openStates) traffic.waiting(state, last.records[state]);
    metrics.recordsOnHold.set(last.onHold);
    metrics.bouncedMails.set(last.bounced);
    metrics.backlogReadAt.set(clock.now().getTime() / MS_PER_SECOND);
  };
  return {
    name: 'backlog',
    everyMs: 10_000,
    failsAfterMs: 60_000,
    async run() {
      try {
        await Promise.all([showRecords(), showPartners(tools, partnerLabels), showJobs(tools)]);
      } finally {
        showAges(last, tools);
      }
    },
    forget() {
      last = undefined;
      for (const gauge of [
        metrics.records,
        metrics.recordsOnHold,
        metrics.partnerRecords,
        metrics.bouncedMails,
        metrics.oldestWaitingSeconds,
        metrics.queueJobs,
        metrics.backlogReadAt,
      ])
        gauge.reset();
    },
  };
}

async function showPartners(
  { db, metrics }: BacklogTools,
  partnerLabels: PartnerLabels,
): Promise<void> {
  const partners = await readPartnerBacklog(db);
  metrics.partnerRecords.reset();
  for (const { partnerId, records } of partners)
    metrics.partnerRecords.inc({ partner: partnerLabels.of(partnerId) }, records);
}

async function showJobs({ queues, metrics, log }: BacklogTools): Promise<void> {
  try {
    const jobs = await queues.counts();
    for (const state of jobStates) metrics.queueJobs.set({ state }, jobs[state]);
  } catch (error) {
    log.debug({ err: error }, 'the queue could not be counted');
    metrics.queueJobs.reset();
  }
}

const OLD_QUEUE_EVERY_MS = 60_000;

export const removeOldQueue = (queues: { readonly old: OldQueue }): LeaderLoop => ({
  name: 'old_queue',
  everyMs: OLD_QUEUE_EVERY_MS,
  failsAfterMs: 10 * OLD_QUEUE_EVERY_MS,
  faultOf: (error) => ({
    code: 'old_queue_stays',
    words: `the queue of older versions stays in Redis: ${(error as Error).message}`,
  }),
  run: () => queues.old.look(),
  forget: () => {},
});

/** Work still waits while the database is away, so its age grows. */
function showAges(backlog: Backlog | undefined, { metrics, clock }: BacklogTools): void {
  if (backlog === undefined) return;
  for (const state of openStates) {
    const since = backlog.oldestReceivedAt[state];
    const ms = since === undefined ? 0 : Math.max(0, clock.now().getTime() - since.getTime());
    metrics.oldestWaitingSeconds.set({ state }, ms / MS_PER_SECOND);
  }
}
