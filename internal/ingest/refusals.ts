/**
 * Records refused requests (401, 403), but only counts them above a rate, because a flood would
 * fill the database.
 */
import { Allowance } from '../platform/allowance.ts';
import type { Clock } from '../platform/clock.ts';
import type { GroupCommit } from '../submission/group-commit.ts';
import type { OverLimitRecorder } from '../submission/over-limit.ts';
import type { SubmissionRecord } from '../submission/submission.ts';
import type { IngestMetrics } from '../telemetry/metrics.ts';
import { REFUSAL_BURST, REFUSALS_PER_SECOND } from './limits.ts';

export interface RefusalTools {
  readonly clock: Clock;
  readonly metrics: Pick<IngestMetrics, 'refusedDropped'>;
  readonly commits: Pick<GroupCommit, 'record'>;
  readonly overLimit: Pick<OverLimitRecorder, 'add'>;
}

export class Refusals {
  readonly #tools: RefusalTools;
  readonly #allowance: Allowance;

  constructor(tools: RefusalTools) {
    this.#tools = tools;
    this.#allowance = new Allowance(REFUSAL_BURST, REFUSALS_PER_SECOND, tools.clock);
  }

  keep(
    request: { readonly address: string; readonly status: 401 | 403; readonly requestId: string },
    recordOf: () => SubmissionRecord,
  ): void {
    const { address, status, requestId } = request;
    const count = (): void => this.#tools.overLimit.add(address, requestId, status);
    if (this.#allowance.take()) void this.#record(recordOf(), count);
    else count();
  }

  async #record(record: SubmissionRecord, count: () => void): Promise<void> {
    const { kind } = await this.#tools.commits.record(record);
    if (kind === 'stored') return;
    this.#tools.metrics.refusedDropped.inc();
    count();
  }
}
