/** Bounds the partners among label values, because each makes a series. */

export const PARTNER_LABELS = 100;
const OTHER = 'other';

export class PartnerLabels {
  readonly #named = new Set<string>();

  of(partnerId: string): string {
    if (this.#named.has(partnerId)) return partnerId;
    if (this.#named.size >= PARTNER_LABELS) return OTHER;
    this.#named.add(partnerId);
    return partnerId;
  }
}
