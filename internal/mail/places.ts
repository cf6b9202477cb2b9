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
  /** Of each domain, the mail that began first comes first. */
  readonly #held = new Map<string, Set<Held>>();
  #free: number;
  /** Whether each domain's last mail ended in time; the domain that was asked last comes last. */
  readonly #wasQuick = new Map<string, boolean>();

  constructor(total: number, clock: Pick<Clock, 'monotonicMs'>) {
    this.#total = total;
    this.#free = total;
    this.#clock = clock;
  }

  get free(): number {
    return this.#free;
  }

  /**
   * Whether the mail may take a place by this rule; a later rule counts while no mail waits that an
   * earlier one lets in.
   */
  mayTake({ partnerId, domain }: Addressed, rule: Rule): boolean {
    if (this.free === 0) return false;
    if (this.#isQuick(domain)) return true;
    if (rule === 'any') return this.free > Math.floor(this.#total * KEPT_FREE);
    if ((this.#held.get(domain)?.size ?? 0) >= this.#part(DOMAIN_PART)) return false;
    return rule === 'in_turn'
      ? this.#heldBySlow(partnerId) < this.#part(PARTNER_PART)
      : this.free > Math.floor(this.#total * KEPT_FOR_PARTNERS);
  }

  take(mail: Addressed): Place {
    const held: Held = { ...mail, startedAtMs: this.#clock.monotonicMs() };
    const ofDomain = this.#held.get(mail.domain) ?? new Set();
    this.#held.set(mail.domain, ofDomain.add(held));
    this.#free -= 1;
    return {
      startedAtMs: held.startedAtMs,
      release: () => {
        if (!ofDomain.delete(held)) return;
        this.#free += 1;
        if (ofDomain.size === 0) this.#held.delete(held.domain);
        this.#remember(held.domain, this.#clock.monotonicMs() - held.startedAtMs <= QUICK_MS);
      },
    };
  }

  /** Places that mails of the partner to slow domains have. */
  #heldBySlow(partnerId: string): number {
    let count = 0;
    for (const [domain, held] of this.#held) {
      if (this.#isQuick(domain)) continue;
      for (const one of held) if (one.partnerId === partnerId) count += 1;
    }
    return count;
  }

  #isQuick(domain: string): boolean {
    if (this.#wasQuick.get(domain) !== true) return false;
    const [oldest] = this.#held.get(domain) ?? [];
    return oldest === undefined || oldest.startedAtMs >= this.#clock.monotonicMs() - QUICK_MS;
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
