/** Follows the operators' holds: what they cover is set aside or ended; what was set aside for an ended hold is due again. */
import { holdOver, type Held, type Hold, type HoldStore } from '../partner/holds.ts';
import type { Clock } from '../platform/clock.ts';
import { pause } from '../platform/deadline.ts';
import type { Logger } from '../platform/log.ts';
import type { WorkerMoves } from '../submission/worker-moves.ts';
import { FOLLOW_HOLDS_MS, SWEPT_FOR_MS, TAKE_UP_PAGE } from './limits.ts';

export interface HoldTools {
  readonly holds: Pick<HoldStore, 'load'>;
  readonly store: Pick<WorkerMoves, 'takeUp'>;
  readonly clock: Clock;
  readonly log: Logger;
  readonly held: { set(value: number): void };
}

/** What workers ask before they begin, and before each effect outside the store. */
export interface Holds {
  over(record: Held): Hold | undefined;
}

export class HoldFollower implements Holds {
  readonly #tools: HoldTools;
  readonly #stop = new AbortController();
  #byPartner: ReadonlyMap<string, readonly Hold[]> = new Map();
  #sweeping = false;

  constructor(tools: HoldTools) {
    this.#tools = tools;
  }

  over(record: Held): Hold | undefined {
    const holds = record.partnerId === undefined ? undefined : this.#byPartner.get(record.partnerId);
    return holds === undefined ? undefined : holdOver(holds, record);
  }

  /** Resolves once the holds are known, and follows them until `close`. */
  async start(): Promise<void> {
    while (!this.#stop.signal.aborted && !(await this.#refresh())) await pause(FOLLOW_HOLDS_MS, this.#stop.signal);
    void this.#follow();
  }

  close(): void {
    this.#stop.abort();
  }

  async #follow(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      await pause(FOLLOW_HOLDS_MS, this.#stop.signal);
      await this.#refresh();
    }
  }

  /** Holds stay as they were while they cannot be read. */
  async #refresh(): Promise<boolean> {
    const { holds, held, log } = this.#tools;
    try {
      const loaded = await holds.load();
      this.#byPartner = Map.groupBy(loaded, ({ partnerId }) => partnerId);
      held.set(loaded.filter(({ state }) => state === 'held').length);
      if (!this.#sweeping) void this.#sweep(loaded);
      return true;
    } catch (error) {
      log.debug({ err: error }, 'holds could not be read');
      return false;
    }
  }

  /** A processor may set a record aside a moment after the hold has ended: so this goes on for a while. */
  async #sweep(holds: readonly Hold[]): Promise<void> {
    const { store, clock, log } = this.#tools;
    this.#sweeping = true;
    try {
      const from = clock.now().getTime() - SWEPT_FOR_MS;
      for (const { _id, endedAt } of holds) {
        if (endedAt === undefined || endedAt.getTime() < from) continue;
        let count = TAKE_UP_PAGE;
        while (count === TAKE_UP_PAGE && !this.#stop.signal.aborted) count = await store.takeUp(_id, TAKE_UP_PAGE);
      }
    } catch (error) {
      log.debug({ err: error }, 'records of an ended hold wait for the next round');
    }
    this.#sweeping = false;
  }
}
