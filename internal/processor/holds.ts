/** Which partners are on hold. */
import type { PartnerHolds } from '../partner/flags.ts';
import type { PlainGauge } from '../platform/process/registry.ts';

export class Holds {
  readonly #flags: Pick<PartnerHolds, 'list'>;
  readonly #onHold: PlainGauge;
  #partners: ReadonlySet<string> = new Set();

  constructor(flags: Pick<PartnerHolds, 'list'>, onHold: PlainGauge) {
    this.#flags = flags;
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
    const onHold = await this.#flags.list();
    this.#partners = new Set(onHold.map(({ _id }) => _id));
    this.#onHold.set(onHold.length);
  }
}
