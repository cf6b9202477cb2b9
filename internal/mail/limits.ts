/** Every bound of sending, with the reason for its size. */

/** Usual relays answer within a second. */
export const QUICK_MS = 2_000;
/** One domain that is slow or unknown gets 2 of 16 places. */
export const DOMAIN_PART = 1 / 8;
/** One partner's mails to such domains get 4 of 16. */
export const PARTNER_PART = 1 / 4;
/** Mails to slow domains leave 3 of 16 free. */
export const KEPT_FREE = 3 / 16;
/** One of these is for another partner. */
export const KEPT_FOR_PARTNERS = 1 / 16;
export const DOMAINS_KNOWN = 1_000;

/** Only answers in this time are evidence of whom the relay turns away. */
export const EVIDENCE_MS = 5_000;
export const EVIDENCE_ANSWERS = 2_000;
/** Below this many accepted mails, a quota over all mail may explain the answers. */
export const CLEAN_DOMAIN_MAILS = 3;
/** If this many other partners or domains are turned away, the relay turns everybody away. */
export const TURNED_AWAY_MANY = 2;

/** A pause lasts this share of the time since the relay first failed. */
export const TRIAL = { share: 0.1, firstMs: 250, capMs: 15_000 } as const;

/** A pace begins here after a pause, and doubles each second without a refusal. */
export const PACE_START = 10;
export const PACE_LEAST = 1;
/** From this many mails a second the relay counts as unbounded. */
export const PACE_UNBOUNDED = 200;
/** The pace is this share of what the relay took in the last second. */
export const PACE_OF_TAKEN = 0.95;
/** The pace grows by this share for each second since the last refusal. */
export const PACE_GROWTH = 0.01;
export const PACE_GROWTH_MOST = 0.5;
