/**
 * Records refused requests (401, 403), but only counts them above a rate, because a flood would
 * fill the database.
 */
import type { Clock } from '../platform/clock.ts';
import type { CommitResult } from '../submission/commit-entry.ts';
import type { SubmissionRecord } from '../submission/submission.ts';
import type { IngestMetrics } from '../telemetry/metrics.ts';
import { REFUSAL_BURST, REFUSALS_PER_SECOND } from './limits.ts';

export interface RefusalTools {
  readonly clock: Clock;
  readonly metrics: Pick<IngestMetrics, 'refusedDropped'>;
  record(record: SubmissionRecord): Promise<CommitResult>;
  countRefused(address: string, status: 401 | 403, requestId: string): void;
}

export class Refusals {
  readonly #tools: RefusalTools;
  #allowance = REFUSAL_BURST;
  #allowanceAtMs: number;

  constructor(tools: RefusalTools) {
    this.#tools = tools;
    this.#allowanceAtMs = tools.clock.monotonicMs();
  }

  keep(
    request: { readonly address: string; readonly status: 401 | 403; readonly requestId: string },
    recordOf: () => SubmissionRecord,
  ): void {
    const { address, status, requestId } = request;
    const count = (): void => this.#tools.countRefused(address, status, requestId);
    if (this.#mayRecord()) void this.#record(recordOf(), count);
    else count();
  }

  async #record(record: SubmissionRecord, count: () => void): Promise<void> {
    const { kind } = await this.#tools.record(record);
    if (kind === 'stored') return;
    this.#tools.metrics.refusedDropped.inc();
    count();
  }

  #mayRecord(): boolean {
    const nowMs = this.#tools.clock.monotonicMs();
    const grown = ((nowMs - this.#allowanceAtMs) * REFUSALS_PER_SECOND) / 1_000;
    this.#allowance = Math.min(REFUSAL_BURST, this.#allowance + grown);
    this.#allowanceAtMs = nowMs;
    if (this.#allowance < 1) return false;
    this.#allowance -= 1;
    return true;
  }
}
