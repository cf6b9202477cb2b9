/**
 * The names of partners as values of a label: a bounded number, because each is a series for every
 * other label's value.
 */

/** Partners that a process shows by name. */
export const PARTNER_LABELS = 100;
const OTHER = 'other';

export class PartnerLabels {
  readonly #named = new Set<string>();

  /**
   * The partner's name if it is one of the first `PARTNER_LABELS` that were asked for; else
   * `other`.
   */
  of(partnerId: string): string {
    if (this.#named.has(partnerId)) return partnerId;
    if (this.#named.size >= PARTNER_LABELS) return OTHER;
    this.#named.add(partnerId);
    return partnerId;
  }
}
