/** Bounds of the partner port, with the reason for each size. */

/** Bounds for all clients together; test/judges/neighbour.test.ts attacks each. */
export const SHARED = {
  /** Holds 500 of the largest bodies. */
  incomingBytes: 32 * 1024 * 1024,
  /** An idle connection costs 12 kB (docs/decisions/0018). */
  connections: 12_000,
  /** Look-ups and lists that give way get 503. */
  lookUps: 256,
  lists: 16,
  /** Look-ups that wait for a final state, each on a connection; they give way with an answer. */
  waits: 1_000,
} as const;

/** The contract sets this bound. */
export const MAX_BODY_BYTES = 65_000;
/** This much of an unwanted body is read, so that no reset destroys the answer. */
export const DRAIN_MAX_BYTES = 16 * 1024 * 1024;
export const DRAIN_MAX_MS = 5_000;
/** An early answer waits this long for the body, to keep the connection. */
export const EARLY_GRACE_MS = 20;

/** Stripe accepts 255; a UUID has 36. */
export const MAX_IDEMPOTENCY_KEY = 255;
/** A small header takes ten times its bytes of memory. */
export const MAX_HEADERS = 100;
/** A twelfth of all, so that one client leaves room. */
export const MAX_CONNECTIONS_PER_ADDRESS = 1_000;
/** 64 kB can hold 900 requests of 10 kB of memory each. */
export const MAX_PIPELINED = 16;

/** Most elections of a primary end sooner. */
export const RETRY_AFTER_SECONDS = 5;

export const LIMITER_PROBE_MS = 1_000;

/** In 7 days this makes 6 million records, about 4 GB. */
export const REFUSALS_PER_SECOND = 10;
/** Records a partner's mistyped key request by request. */
export const REFUSAL_BURST = 100;

export const STATUS_TIMEOUT_MS = 2_000;
/** Proxies usually wait a minute. */
export const MAX_WAIT_SECONDS = 30;

export const LAST_ANSWERS_MS = 5_000;
export const DRAIN_DEADLINE_MS = 20_000;

export const OUTAGE_LINES_EVERY_MS = 10_000;
