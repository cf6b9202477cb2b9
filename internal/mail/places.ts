/**
 * The places for hand-overs in one process, and which mail may take the next one.
 *
 * A slow recipient domain must not delay other mails. Of 16 usual places a domain that answers
 * within two seconds may take all, another one 2, and one partner's mails to such domains 4, or 13
 * if nothing else waits. A quick domain may hang, so each mail that takes longer opens a further
 * place, up to 32.
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

export interface Addressed {
  readonly partnerId: string;
  readonly domain: string;
}

export interface Place {
  readonly startedAtMs: number;
  release(): void;
}

/** A later rule applies only if no mail may start by an earlier one. */
export const rules = ['in_turn', 'other_domain', 'any'] as const;
export type Rule = (typeof rules)[number];

interface Held extends Addressed {
  readonly startedAtMs: number;
}

export class Places {
  readonly #most: number;
  readonly #usual: number;
  readonly #clock: Pick<Clock, 'monotonicMs'>;
  readonly #held = new Map<string, Set<Held>>();
  readonly #inOrder = new Set<Held>();
  readonly #wasQuick = new Map<string, boolean>();

  /** Half of `most` are the usual places. */
  constructor(most: number, clock: Pick<Clock, 'monotonicMs'>) {
    this.#most = most;
    this.#usual = Math.ceil(most / 2);
    this.#clock = clock;
  }

  get free(): number {
    const quickSince = this.#clock.monotonicMs() - QUICK_MS;
    let slow = 0;
    for (const { startedAtMs } of this.#inOrder) {
      if (startedAtMs >= quickSince) break;
      slow += 1;
    }
    return Math.min(this.#usual + slow, this.#most) - this.#inOrder.size;
  }

  now(): (mail: Addressed, rule: Rule) => boolean {
    const { free } = this;
    if (free <= 0) return () => false;
    const shares = new Map<string, boolean>();
    const isWithinShare = (partnerId: string): boolean => {
      const known = shares.get(partnerId);
      if (known !== undefined) return known;
      const within = this.#heldBySlow(partnerId) < this.#part(PARTNER_PART);
      shares.set(partnerId, within);
      return within;
    };
    return ({ partnerId, domain }, rule) => {
      if (this.#isQuick(domain) && isWithinShare(partnerId)) return true;
      if (rule === 'any') return free > Math.floor(this.#usual * KEPT_FREE);
      if ((this.#held.get(domain)?.size ?? 0) >= this.#part(DOMAIN_PART)) return false;
      return rule === 'in_turn'
        ? isWithinShare(partnerId)
        : free > Math.floor(this.#usual * KEPT_FOR_PARTNERS);
    };
  }

  take(mail: Addressed): Place {
    const held: Held = { ...mail, startedAtMs: this.#clock.monotonicMs() };
    const ofDomain = this.#held.get(mail.domain) ?? new Set();
    this.#held.set(mail.domain, ofDomain.add(held));
    this.#inOrder.add(held);
    return {
      startedAtMs: held.startedAtMs,
      release: () => {
        if (!ofDomain.delete(held)) return;
        this.#inOrder.delete(held);
        if (ofDomain.size === 0) this.#held.delete(held.domain);
        this.#remember(held.domain, this.#clock.monotonicMs() - held.startedAtMs <= QUICK_MS);
      },
    };
  }

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
    return Math.max(1, Math.floor(this.#usual * share));
  }
}
