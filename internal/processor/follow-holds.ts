/** Follows which partners are on hold. */
import type { PartnerHolds } from '../partner/flags.ts';
import { pause } from '../platform/deadline.ts';
import type { Logger } from '../platform/log.ts';
import { FOLLOW_HOLDS_MS } from './limits.ts';

export interface Holds {
  has(partnerId: string | undefined): boolean;
  partners(): readonly string[];
}

export class HoldFollower implements Holds {
  readonly #holds: Pick<PartnerHolds, 'list'>;
  readonly #log: Logger;
  readonly #onHold: { set(value: number): void };
  readonly #stop = new AbortController();
  #partners: ReadonlySet<string> = new Set();

  constructor(options: {
    readonly holds: Pick<PartnerHolds, 'list'>;
    readonly log: Logger;
    readonly onHold: { set(value: number): void };
  }) {
    this.#holds = options.holds;
    this.#log = options.log;
    this.#onHold = options.onHold;
  }

  has(partnerId: string | undefined): boolean {
    return partnerId !== undefined && this.#partners.has(partnerId);
  }

  partners(): readonly string[] {
    return [...this.#partners];
  }

  async start(): Promise<void> {
    while (!this.#stop.signal.aborted && !(await this.refresh())) {
      await pause(FOLLOW_HOLDS_MS, this.#stop.signal);
    }
    void this.#follow();
  }

  close(): void {
    this.#stop.abort();
  }

  async #follow(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      await pause(FOLLOW_HOLDS_MS, this.#stop.signal);
      await this.refresh();
    }
  }

  /** Keeps the last known holds while they cannot be read. */
  async refresh(): Promise<boolean> {
    try {
      const onHold = await this.#holds.list();
      this.#partners = new Set(onHold.map(({ _id }) => _id));
      this.#onHold.set(onHold.length);
      return true;
    } catch (error) {
      this.#log.debug({ err: error }, 'the partners on hold could not be read');
      return false;
    }
  }
}
