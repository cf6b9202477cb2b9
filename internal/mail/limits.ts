/** The bounds of sending. */

/** Most relays answer within a second. */
export const QUICK_MS = 2_000;
/** BusyPartners of the usual places: see places.ts. */
export const DOMAIN_PART = 1 / 8;
export const PARTNER_PART = 1 / 4;
export const KEPT_FREE = 3 / 16;
export const KEPT_FOR_PARTNERS = 1 / 16;
export const DOMAINS_KNOWN = 1_000;

/** Older answers do not show whom the relay refuses now. */
export const EVIDENCE_MS = 5_000;
export const EVIDENCE_ANSWERS = 2_000;
/** Of other domains; with fewer, a quota may explain the refusals. */
export const CLEAN_MAILS = 3;
/** Refusals of this many others concern everybody, unless they are a smaller share. */
export const TURNED_AWAY_MANY = 2;
export const TURNED_AWAY_SHARE = 0.1;

export const TRIAL = { share: 0.1, firstMs: 250, capMs: 15_000 } as const;

export const PACE_LEAST = 1;
/** Mails a second once one is accepted; doubles each second. */
export const PACE_START = 10;
/** The bound ends at this pace. */
export const PACE_UNBOUNDED = 200;
/** Share of what the relay accepted in the last second. */
export const PACE_OF_TAKEN = 0.95;
/** Per second since the last refusal. */
export const PACE_GROWTH = 0.01;
export const PACE_GROWTH_MOST = 0.5;
