/** Exports how much work waits. Only the leader queries the stores. */
import type { Clock } from '../platform/clock.ts';
import { pause } from '../platform/deadline.ts';
import type { Logger } from '../platform/log.ts';
import { jobStates, type JobState } from '../queue/job.ts';
import { backlogStates, openStates } from '../submission/states.ts';
import type { Backlog } from '../submission/backlog.ts';
import type { ControllerMetrics } from '../telemetry/metrics.ts';
import type { PartnerLabels } from '../telemetry/partner-labels.ts';

const READ_EVERY_MS = 10_000;
const LOOK_EVERY_MS = 1_000;
const MS_PER_SECOND = 1_000;

export interface BacklogTools {
  readonly clock: Clock;
  readonly log: Logger;
  readonly leads: () => boolean;
  read(): Promise<Backlog>;
  readPartners(): Promise<readonly { readonly partnerId: string; readonly records: number }[]>;
  jobs(): Promise<Readonly<Record<JobState, number>>>;
  readonly metrics: Pick<
    ControllerMetrics,
    | 'records'
    | 'recordsOnHold'
    | 'partnerRecords'
    | 'bouncedMails'
    | 'oldestWaitingSeconds'
    | 'queueJobs'
    | 'backlogReadAt'
  >;
  readonly partnerLabels: PartnerLabels;
}

export async function watchBacklog(tools: BacklogTools, signal: AbortSignal): Promise<void> {
  let last: Backlog | undefined;
  const logging = { ...tools, read: loggingRead(tools) };
  while (!signal.aborted) {
    last = await showBacklog(last, logging);
    await pause(tools.leads() ? READ_EVERY_MS : LOOK_EVERY_MS, signal);
  }
}

export function loggingRead(options: {
  read: BacklogTools['read'];
  readonly log: Pick<Logger, 'warn' | 'info'>;
}): BacklogTools['read'] {
  const { read, log } = options;
  let failing = false;
  return async () => {
    try {
      const backlog = await read();
      if (failing) log.info('the backlog is read again');
      failing = false;
      return backlog;
    } catch (error) {
      if (!failing) log.warn({ err: error }, 'the backlog cannot be read');
      failing = true;
      throw error;
    }
  };
}

export async function showBacklog(
  last: Backlog | undefined,
  tools: BacklogTools,
): Promise<Backlog | undefined> {
  const backlog = tools.leads() ? ((await showRecords(tools)) ?? last) : undefined;
  await Promise.all([showPartners(tools), showJobs(tools)]);
  showAges(backlog, tools);
  // Another process may lead by now.
  if (tools.leads()) return backlog;
  forget(tools);
  return undefined;
}

async function showRecords(tools: BacklogTools): Promise<Backlog | undefined> {
  const { metrics, clock } = tools;
  try {
    const backlog = await tools.read();
    for (const state of backlogStates) metrics.records.set({ state }, backlog.records[state]);
    metrics.recordsOnHold.set(backlog.onHold);
    metrics.bouncedMails.set(backlog.bounced);
    metrics.backlogReadAt.set(clock.now().getTime() / MS_PER_SECOND);
    return backlog;
  } catch {
    return undefined;
  }
}

async function showPartners(tools: BacklogTools): Promise<void> {
  const { partnerLabels, metrics, log } = tools;
  if (!tools.leads()) return;
  try {
    const partners = await tools.readPartners();
    metrics.partnerRecords.reset();
    for (const { partnerId, records } of partners) {
      metrics.partnerRecords.inc({ partner: partnerLabels.of(partnerId) }, records);
    }
  } catch (error) {
    log.debug({ err: error }, 'the backlog of partners could not be read');
  }
}

/** Work still waits while the database is away, so its age grows. */
function showAges(backlog: Backlog | undefined, { metrics, clock }: BacklogTools): void {
  if (backlog === undefined) return;
  for (const state of openStates) {
    const since = backlog.oldestReceivedAt[state];
    const ms = since === undefined ? 0 : Math.max(0, clock.now().getTime() - since.getTime());
    metrics.oldestWaitingSeconds.set({ state }, ms / MS_PER_SECOND);
  }
}

async function showJobs(tools: BacklogTools): Promise<void> {
  const { metrics, log } = tools;
  if (!tools.leads()) return;
  try {
    const jobs = await tools.jobs();
    for (const state of jobStates) metrics.queueJobs.set({ state }, jobs[state]);
  } catch (error) {
    log.debug({ err: error }, 'the queue could not be counted');
    metrics.queueJobs.reset();
  }
}

function forget({ metrics }: BacklogTools): void {
  for (const gauge of [
    metrics.records,
    metrics.recordsOnHold,
    metrics.partnerRecords,
    metrics.bouncedMails,
    metrics.oldestWaitingSeconds,
    metrics.queueJobs,
  ])
    gauge.reset();
  metrics.backlogReadAt.set(0);
}
