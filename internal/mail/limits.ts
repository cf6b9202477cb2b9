/** The bounds of sending. */

/** An e-mail holds its place this long; most relays answer within a second. */
export const HELD_MS = 2_000;
/** Each keeps a connection, 100 kB with TLS; beyond it only partners without a slow one begin. */
export const SLOW_AT_MOST = 1_000;
/** Beyond it nobody begins. */
export const SLOW_IN_ALL = 2_000;
/** The place of an e-mail that the relay has no capacity for, while it takes others. */
export const REST_MS = 1_000;
/** At most 15 s with its jitter. */
export const PROBE_BACKOFF = { firstMs: 250, capMs: 12_500 } as const;

/** After this, the process keeps the pace on its own for a second. */
export const PACE_TIMEOUT_MS = 100;
export const PACE_ALONE_MS = 1_000;
/** With one e-mail a second, some sixty processes wait so long for each other. */
export const PACE_LONGEST_WAIT_MS = 60_000;
