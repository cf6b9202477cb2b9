/** What a flood of refused requests records, and what an outage logs, within bounds. */
import { Allowance, type Clock } from '../platform/process/clock.ts';
import type { Logger } from '../platform/process/log.ts';
import type { CommitResult, GroupCommit } from '../submission/group-commit.ts';
import type { OverLimitRecorder, TurnedAway } from '../submission/over-limit.ts';
import type { SubmissionRecord } from '../submission/submission.ts';
import type { IngestMetrics } from '../telemetry/metrics.ts';
import { OUTAGE_LINES_EVERY_MS, REFUSAL_BURST, REFUSALS_PER_SECOND } from './bounds.ts';

/** Logs the beginning and end of database outages. */
export class OutageLog {
  readonly #clock: Clock;
  readonly #log: Pick<Logger, 'warn' | 'info'>;
  #since: number | undefined;
  #nextAt = -Infinity;

  constructor(tools: { readonly clock: Clock; readonly log: Pick<Logger, 'warn' | 'info'> }) {
    this.#clock = tools.clock;
    this.#log = tools.log;
  }

  note(result: CommitResult): void {
    // A primary without its majority still finds earlier records.
    if (result.kind !== 'stored' && !('reason' in result)) return;
    if (result.kind === 'stored') {
      if (this.#since !== undefined) this.#back(this.#since);
      return;
    }
    const now = this.#clock.monotonicMs();
    // A partial outage must not fill the log.
    if (this.#since === undefined && now >= this.#nextAt) {
      this.#since = now;
      this.#nextAt = now + OUTAGE_LINES_EVERY_MS;
      const { kind, reason } = result;
      this.#log.warn(
        { result: kind, reason },
        'mongodb is away, slow or refuses: requests are not recorded',
      );
    }
  }

  #back(since: number): void {
    const seconds = Math.round((this.#clock.monotonicMs() - since) / 1_000);
    this.#since = undefined;
    this.#log.info({ seconds }, 'mongodb is back: requests are recorded again');
  }
}

export interface RefusalTools {
  readonly clock: Clock;
  readonly metrics: Pick<IngestMetrics, 'refusedDropped'>;
  readonly commits: Pick<GroupCommit, 'record'>;
  readonly overLimit: Pick<OverLimitRecorder, 'add'>;
}

/**
 * Records refused requests (401, 403), but only counts them above a rate, because a flood would
 * fill the database.
 */
export class Refusals {
  readonly #tools: RefusalTools;
  readonly #allowance: Allowance;

  constructor(tools: RefusalTools) {
    this.#tools = tools;
    this.#allowance = new Allowance(REFUSAL_BURST, REFUSALS_PER_SECOND, tools.clock);
  }

  keep(
    request: TurnedAway & { readonly status: 401 | 403 },
    recordOf: () => SubmissionRecord,
  ): void {
    const count = (): void => this.#tools.overLimit.add(request);
    if (this.#allowance.spend()) void this.#record(recordOf(), count);
    else count();
  }

  async #record(record: SubmissionRecord, count: () => void): Promise<void> {
    const { kind } = await this.#tools.commits.record(record);
    if (kind === 'stored') return;
    this.#tools.metrics.refusedDropped.inc();
    count();
  }
}
