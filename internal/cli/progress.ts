/** Reports the progress of a long command, its speed and the remaining time. */
import type { Clock } from '../platform/clock.ts';
import { duration } from '../platform/terminal.ts';
import type { Output } from './command.ts';
import { PROGRESS_EVERY_MS } from './limits.ts';

export class Progress {
  readonly #out: Pick<Output, 'note'>;
  readonly #clock: Clock;
  readonly #total: number | undefined;
  readonly #startedMs: number;
  #toldMs: number;
  #done = 0;

  constructor(out: Pick<Output, 'note'>, clock: Clock, total: number | undefined) {
    this.#out = out;
    this.#clock = clock;
    this.#total = total;
    this.#startedMs = this.#toldMs = clock.monotonicMs();
  }

  add(count: number): void {
    this.#done += count;
    const now = this.#clock.monotonicMs();
    if (now - this.#toldMs < PROGRESS_EVERY_MS) return;
    this.#toldMs = now;
    const elapsedMs = now - this.#startedMs;
    const rate = Math.round((this.#done * 1_000) / elapsedMs);
    const left = this.#total === undefined ? undefined : Math.max(0, this.#total - this.#done);
    const of = this.#total === undefined ? '' : ` of about ${this.#total}`;
    const time =
      left === undefined ? '' : `, about ${duration((left * elapsedMs) / this.#done)} left`;
    this.#out.note(`${this.#done}${of} requests, ${rate} a second${time}`);
  }
}
