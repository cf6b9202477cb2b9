/** Logs the beginning and end of database outages. */
import type { Clock } from '../platform/clock.ts';
import type { Logger } from '../platform/log.ts';
import type { CommitResult } from '../submission/commit-entry.ts';
import { OUTAGE_LINES_EVERY_MS } from './limits.ts';

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
    const now = this.#clock.monotonicMs();
    if (result.kind === 'stored') this.#back(now);
    // A partial outage must not fill the log.
    else if (this.#since === undefined && now >= this.#nextAt) {
      this.#since = now;
      this.#nextAt = now + OUTAGE_LINES_EVERY_MS;
      const { kind, reason } = result;
      this.#log.warn(
        { result: kind, reason },
        'mongodb is away, slow or refuses: requests are not recorded',
      );
    }
  }

  #back(now: number): void {
    if (this.#since === undefined) return;
    const seconds = Math.round((now - this.#since) / 1_000);
    this.#since = undefined;
    this.#log.info({ seconds }, 'mongodb is back: requests are recorded again');
  }
}
