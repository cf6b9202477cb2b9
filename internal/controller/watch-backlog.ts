/** Exports how much work waits. Only the leader queries the stores. */
import type { Clock } from '../platform/clock.ts';
import type { Logger } from '../platform/log.ts';
import type { Loops } from '../platform/loop.ts';
import { jobStates, type JobState } from '../queue/job.ts';
import { backlogStates, openStates } from '../submission/states.ts';
import type { Backlog } from '../submission/backlog.ts';
import type { ControllerMetrics } from '../telemetry/metrics.ts';
import type { PartnerLabels } from '../telemetry/partner-labels.ts';

const READ_EVERY_MS = 10_000;
const LOOK_EVERY_MS = 1_000;
const FAILS_AFTER_MS = 60_000;
const MS_PER_SECOND = 1_000;

export interface BacklogTools {
  readonly clock: Clock;
  readonly log: Logger;
  readonly leads: () => boolean;
  readonly read: () => Promise<Backlog>;
  readonly readPartners: () => Promise<
    readonly { readonly partnerId: string; readonly records: number }[]
  >;
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

export class BacklogWatch {
  readonly #tools: BacklogTools;
  #last: Backlog | undefined;

  constructor(tools: BacklogTools) {
    this.#tools = tools;
  }

  start(loops: Pick<Loops<'backlog'>, 'start'>): void {
    loops.start({
      name: 'backlog',
      everyMs: () => (this.#tools.leads() ? READ_EVERY_MS : LOOK_EVERY_MS),
      failsAfterMs: FAILS_AFTER_MS,
      run: () => this.show(),
    });
  }

  /** Rejects if the database cannot be read. */
  async show(): Promise<void> {
    const tools = this.#tools;
    try {
      if (tools.leads())
        await Promise.all([this.#showRecords(), showPartners(tools), showJobs(tools)]);
    } finally {
      // Another process may lead by now.
      if (tools.leads()) showAges(this.#last, tools);
      else {
        this.#last = undefined;
        forget(tools);
      }
    }
  }

  async #showRecords(): Promise<void> {
    const { metrics, clock, read } = this.#tools;
    const backlog = (this.#last = await read());
    for (const state of backlogStates) metrics.records.set({ state }, backlog.records[state]);
    metrics.recordsOnHold.set(backlog.onHold);
    metrics.bouncedMails.set(backlog.bounced);
    metrics.backlogReadAt.set(clock.now().getTime() / MS_PER_SECOND);
  }
}

async function showPartners({ partnerLabels, metrics, readPartners }: BacklogTools): Promise<void> {
  const partners = await readPartners();
  metrics.partnerRecords.reset();
  for (const { partnerId, records } of partners)
    metrics.partnerRecords.inc({ partner: partnerLabels.of(partnerId) }, records);
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
