/** Every bound of sending, with the reason for its size. */

/**
 * A domain that answers within this time may hold every place; one that takes longer, or has not
 * answered yet, has a share. Usual relays answer within a second.
 */
export const QUICK_MS = 2_000;
/** Of the places, the part that one domain not known as quick may hold: 2 of 16. */
export const DOMAIN_PART = 1 / 8;
/** Of the places, the part that the mails of one partner to such domains may hold: 4 of 16. */
export const PARTNER_PART = 1 / 4;
/**
 * Of the places, the part that mails to slow domains leave free even if nobody else waits: 3 of 16.
 */
export const KEPT_FREE = 3 / 16;
/** Of these, the part that is left for another partner: 1 of 16. */
export const KEPT_FOR_PARTNERS = 1 / 16;
/** Domains whose last answer is remembered. */
export const DOMAINS_KNOWN = 1_000;

/** How far back answers count as evidence of whom the relay turns away. */
export const EVIDENCE_MS = 5_000;
/** Answers remembered in that time. */
export const EVIDENCE_ANSWERS = 2_000;
/**
 * Mails of another domain that the relay took: below it, a quota over all mail explains the answers
 * as well.
 */
export const CLEAN_DOMAIN_MAILS = 3;
/** With so many other partners or domains turned away, the relay turns away everyone. */
export const TURNED_AWAY_MANY = 2;

/**
 * The pause after a failure is this share of the time since the relay failed first, within bounds.
 */
export const TRIAL = { share: 0.1, firstMs: 250, capMs: 15_000 } as const;

/** Mails a second after a pause for capacity; doubled each second that goes well. */
export const PACE_START = 10;
/** The slowest pace in mails a second. */
export const PACE_LEAST = 1;
/** Above this pace in mails a second the relay counts as unbounded again. */
export const PACE_UNBOUNDED = 200;
/** Share of what the relay took in the last second that becomes the pace. */
export const PACE_OF_TAKEN = 0.95;
/** A known pace grows by this share for each second since the relay last asked to slow down. */
export const PACE_GROWTH = 0.01;
export const PACE_GROWTH_MOST = 0.5;
