/** Every bound of the pace and the share of sending, with the reason for its size. */

/** Answers are counted for a second at least, the unit of most quotas, and until there are enough, but not for ever. */
export const PACE_WINDOW_MS = 1_000;
export const PACE_ANSWERS = 20;
export const PACE_LONGEST_MS = 10_000;
/** Slowest pace in mails a second; a slower one would take hours to find out that the relay is well again. */
export const PACE_LEAST = 1;
/** Where a pace without a bound begins to shrink: few relays give a new customer more mails a second. */
export const PACE_UNKNOWN = 100;
/** What is left of the pace after an answer that asks to slow down. */
export const PACE_SHRINKING = 0.97;
/** Up to this share of answers that ask to slow down the pace is nearly right: it shrinks by that little alone. */
export const PACE_FEW = 0.1;
/** Growth in each second that goes well: as a share of the pace, and at least this many mails a second. */
export const PACE_GROWTH = 0.005;
export const PACE_LEAST_GROWTH = 0.02;

/** Share of the slots that the mails to one domain may hold. */
export const DOMAIN_SHARE = 0.25;
/** How long a mail waits for a slot of its domain: one that answers frees a slot sooner, even over a slow relay. */
export const DOMAIN_WAIT_MS = 3_000;
/** How long a domain that freed none meanwhile counts as slow, unless it frees one: its mails do not wait in a slot. */
export const DOMAIN_SLOW_MS = 30_000;
