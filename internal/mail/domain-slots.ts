/** Keeps a slow recipient domain from holding all slots: each domain has a share of them. */
import type { Clock } from '../platform/clock.ts';
import { pause } from '../platform/deadline.ts';
import { DOMAIN_SHARE, DOMAIN_SLOW_MS, DOMAIN_WAIT_MS } from './limits.ts';

interface Domain {
  held: number;
  /** Slots given back so far. */
  freed: number;
  slowUntilMs: number;
  readonly waiting: (() => void)[];
}

export class DomainSlots {
  readonly #most: number;
  readonly #clock: Clock;
  /** Only domains with a slot held or waited for, or that are slow: at most the slots of this process, and the slow ones. */
  readonly #domains = new Map<string, Domain>();

  /** `slots`: hand-overs of this process at the same time. */
  constructor(slots: number, clock: Clock) {
    this.#most = Math.max(1, Math.floor(slots * DOMAIN_SHARE));
    this.#clock = clock;
  }

  /** Takes a slot of `domain` that is free; false if there is none. */
  takeNow(domain: string): boolean {
    this.#forgetIdle();
    const state = this.#domains.get(domain) ?? { held: 0, freed: 0, slowUntilMs: 0, waiting: [] };
    this.#domains.set(domain, state);
    if (state.held >= this.#most) return false;
    state.held += 1;
    return true;
  }

  /** Takes a slot of `domain`, waiting a little for one; false if the domain holds its share. */
  async take(domain: string): Promise<boolean> {
    const state = this.takeNow(domain) ? undefined : this.#domains.get(domain);
    if (state === undefined) return true;
    if (this.#clock.monotonicMs() < state.slowUntilMs) return false;
    const given = new AbortController();
    // A slot that becomes free is handed on, so it stays held.
    const take = (): void => given.abort();
    state.waiting.push(take);
    const { freed } = state;
    await pause(DOMAIN_WAIT_MS, given.signal);
    if (given.signal.aborted) return true;
    state.waiting.splice(state.waiting.indexOf(take), 1);
    // One that goes on is only asked for much: whoever comes next may wait as well.
    if (state.freed === freed) state.slowUntilMs = this.#clock.monotonicMs() + DOMAIN_SLOW_MS;
    return false;
  }

  /** Gives a slot back that `take` gave. */
  release(domain: string): void {
    const state = this.#domains.get(domain);
    if (state === undefined) return;
    state.freed += 1;
    state.slowUntilMs = 0;
    const next = state.waiting.shift();
    if (next === undefined) state.held -= 1;
    else next();
  }

  #forgetIdle(): void {
    const now = this.#clock.monotonicMs();
    for (const [name, { held, waiting, slowUntilMs }] of this.#domains) {
      if (held === 0 && waiting.length === 0 && slowUntilMs <= now) this.#domains.delete(name);
    }
  }
}
