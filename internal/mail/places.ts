/**
 * The places for hand-overs of one process: who may take the next one. Pure.
 *
 * A slow recipient domain must not keep other mails waiting. So a domain that answers within two
 * seconds may hold all 16 places. One that is slow, or not known yet, may hold 2, and the mails of
 * one partner to such domains 4. Where nobody else waits they may hold 13: two places are left for
 * other domains, and a third for other partners.
 */
import type { Clock } from '../platform/clock.ts';
import {
  DOMAIN_PART,
  DOMAINS_KNOWN,
  KEPT_FOR_PARTNERS,
  KEPT_FREE,
  PARTNER_PART,
  QUICK_MS,
} from './limits.ts';

/** What is asked for a place. */
export interface Addressed {
  readonly partnerId: string;
  /** Of the recipient's address, in lower case. */
  readonly domain: string;
}

export interface Place {
  readonly startedAtMs: number;
  /** Frees the place; a second call does nothing. */
  release(): void;
}

/** By what a mail may take a place, in order. */
export const rules = ['in_turn', 'other_domain', 'any'] as const;
export type Rule = (typeof rules)[number];

interface Held extends Addressed {
  readonly startedAtMs: number;
}

export class Places {
  readonly #total: number;
  readonly #clock: Pick<Clock, 'monotonicMs'>;
  readonly #held = new Set<Held>();
  /** Whether each domain's last mail ended in time; the domain that was asked last comes last. */
  readonly #wasQuick = new Map<string, boolean>();

  constructor(total: number, clock: Pick<Clock, 'monotonicMs'>) {
    this.#total = total;
    this.#clock = clock;
  }

  get free(): number {
    return this.#total - this.#held.size;
  }

  /**
   * Whether the mail may take a place by this rule; a later rule counts while no mail waits that an
   * earlier one lets in.
   */
  mayTake({ partnerId, domain }: Addressed, rule: Rule): boolean {
    if (this.free === 0) return false;
    if (this.#isQuick(domain)) return true;
    const held = [...this.#held];
    const withinDomain =
      held.filter((one) => one.domain === domain).length < this.#part(DOMAIN_PART);
    switch (rule) {
      case 'in_turn': {
        const ofPartner = held.filter(
          (one) => one.partnerId === partnerId && !this.#isQuick(one.domain),
        );
        return withinDomain && ofPartner.length < this.#part(PARTNER_PART);
      }
      case 'other_domain':
        return withinDomain && this.free > Math.floor(this.#total * KEPT_FOR_PARTNERS);
      case 'any':
        return this.free > Math.floor(this.#total * KEPT_FREE);
    }
  }

  take(mail: Addressed): Place {
    const held: Held = { ...mail, startedAtMs: this.#clock.monotonicMs() };
    this.#held.add(held);
    return {
      startedAtMs: held.startedAtMs,
      release: () => {
        if (!this.#held.delete(held)) return;
        this.#remember(held.domain, this.#clock.monotonicMs() - held.startedAtMs <= QUICK_MS);
      },
    };
  }

  #isQuick(domain: string): boolean {
    if (this.#wasQuick.get(domain) !== true) return false;
    const since = this.#clock.monotonicMs() - QUICK_MS;
    return [...this.#held].every((one) => one.domain !== domain || one.startedAtMs >= since);
  }

  #remember(domain: string, quick: boolean): void {
    this.#wasQuick.delete(domain);
    this.#wasQuick.set(domain, quick);
    const [oldest] = this.#wasQuick.keys();
    if (this.#wasQuick.size > DOMAINS_KNOWN && oldest !== undefined) this.#wasQuick.delete(oldest);
  }

  #part(share: number): number {
    return Math.max(1, Math.floor(this.#total * share));
  }
}
