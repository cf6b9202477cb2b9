/** Follows which partners are on hold. */
import type { PartnerHolds } from '../partner/flags.ts';

export interface Holds {
  has(partnerId: string | undefined): boolean;
  partners(): readonly string[];
}

export class HoldFollower implements Holds {
  readonly #holds: Pick<PartnerHolds, 'list'>;
  readonly #onHold: { set(value: number): void };
  #partners: ReadonlySet<string> = new Set();

  constructor(holds: Pick<PartnerHolds, 'list'>, onHold: { set(value: number): void }) {
    this.#holds = holds;
    this.#onHold = onHold;
  }

  has(partnerId: string | undefined): boolean {
    return partnerId !== undefined && this.#partners.has(partnerId);
  }

  partners(): readonly string[] {
    return [...this.#partners];
  }

  /** Keeps the last known holds while they cannot be read. */
  async refresh(): Promise<void> {
    const onHold = await this.#holds.list();
    this.#partners = new Set(onHold.map(({ _id }) => _id));
    this.#onHold.set(onHold.length);
  }
}
