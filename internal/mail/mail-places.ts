/**
 * The places for hand-overs in one process, and which partner may take the next one.
 *
 * An e-mail holds its place for two seconds at most. Then it is slow: it gives the place back and
 * keeps its connection. A partner is slow while one of its e-mails is, and until one ends in time.
 * A slow partner has at most as many slow e-mails as there are places. Slow partners wait behind
 * the others once they hold half of the places. So silent recipients delay another partner's
 * e-mail by two seconds at most, however many they are.
 */
import { HELD_MS, SLOW_AT_MOST, SLOW_IN_ALL } from './limits.ts';

export interface Place {
  /** The hand-over begins, and with it the two seconds. */
  start(): void;
  /** `restMs` keeps the place from others for a while. */
  release(restMs?: number): void;
}

interface Partner {
  held: number;
  slow: number;
  lastWasSlow: boolean;
}

export class MailPlaces {
  readonly #count: number;
  readonly #onChange: () => void;
  readonly #partners = new Map<string, Partner>();
  #held = 0;
  #slow = 0;

  constructor(count: number, onChange: () => void) {
    this.#count = count;
    this.#onChange = onChange;
  }

  get slow(): number {
    return this.#slow;
  }

  choose(partnersInTurn: Iterable<string>): string | undefined {
    if (this.#held >= this.#count || this.#slow >= SLOW_IN_ALL) return undefined;
    const half = this.#heldBySlow() >= this.#count / 2;
    let behind: string | undefined;
    for (const partnerId of partnersInTurn) {
      const partner = this.#partners.get(partnerId);
      if (partner === undefined || !isSlow(partner)) return partnerId;
      if (partner.slow >= this.#count || this.#slow >= SLOW_AT_MOST) continue;
      if (!half) return partnerId;
      behind ??= partnerId;
    }
    return behind;
  }

  take(partnerId: string): Place {
    const partner = this.#partners.get(partnerId) ?? { held: 0, slow: 0, lastWasSlow: false };
    this.#partners.set(partnerId, partner);
    let timer: NodeJS.Timeout | undefined;
    let slow = false;
    this.#hold(partner, 1);
    const giveBack = (): void => {
      if (slow) this.#countSlow(partner, -1);
      else this.#hold(partner, -1);
      if (partner.held === 0 && !isSlow(partner)) this.#partners.delete(partnerId);
      this.#onChange();
    };
    const becomeSlow = (): void => {
      slow = true;
      this.#hold(partner, -1);
      this.#countSlow(partner, 1);
      this.#onChange();
    };
    return {
      start: () => {
        timer = setTimeout(becomeSlow, HELD_MS);
      },
      release: (restMs = 0) => {
        clearTimeout(timer);
        if (timer !== undefined) partner.lastWasSlow = slow;
        if (slow || restMs === 0) giveBack();
        else setTimeout(giveBack, restMs);
      },
    };
  }

  #hold(partner: Partner, by: number): void {
    partner.held += by;
    this.#held += by;
  }

  #countSlow(partner: Partner, by: number): void {
    partner.slow += by;
    this.#slow += by;
  }

  #heldBySlow(): number {
    let held = 0;
    for (const partner of this.#partners.values()) if (isSlow(partner)) held += partner.held;
    return held;
  }
}

function isSlow({ slow, lastWasSlow }: Partner): boolean {
  return slow > 0 || lastWasSlow;
}
