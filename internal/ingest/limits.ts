/** Every bound of the partner port, with the reason for its size. */

/** The contract's, in bytes, not characters. */
export const MAX_BODY_BYTES = 65_000;
/**
 * Bodies on their way, all together: 500 of the largest at once. 10,000 partners that each hold one
 * back would take 650 MB; beyond this bound the one that has been on its way longest gets the 500.
 */
export const MAX_INCOMING_BYTES = 32 * 1024 * 1024;
/**
 * What is read and thrown away of a body nobody wants, so that the partner reads our answer and not
 * a reset.
 */
export const DRAIN_MAX_BYTES = 16 * 1024 * 1024;
/** How long that may take. */
export const DRAIN_MAX_MS = 5_000;
/**
 * An answer that is certain early waits this long for a body that is being sent, so that the
 * connection can be kept.
 */
export const EARLY_GRACE_MS = 20;
/**
 * After the last answer on a connection of which not all was read, this long is left to read that
 * answer.
 */
export const LINGER_UNREAD_MS = 1_000;
/** From the headers to the end of the body. 65 kB in ten seconds is slower than any modem. */
export const BODY_TIMEOUT_MS = 10_000;
/** From the first byte of a request to the end of its headers. */
export const HEADERS_TIMEOUT_MS = 10_000;
/** Node's own bound over a whole request; above ours, so that ours gets to answer and record. */
export const REQUEST_TIMEOUT_MS = 30_000;
/**
 * How often Node looks for requests over these bounds (its default of 30 s would let 10 s become
 * 40).
 */
export const CONNECTIONS_CHECK_MS = 1_000;
/**
 * Characters of an Idempotency-Key: a UUID has 36, and Stripe, whose clients partners may have,
 * takes 255.
 */
export const MAX_IDEMPOTENCY_KEY = 255;
/** All headers together: room for a long key and tracing headers, no room for abuse. */
export const MAX_HEADER_BYTES = 16 * 1024;
/**
 * A request with as many headers or more is refused: small ones take ten times their bytes, and
 * Node drops what is beyond.
 */
export const MAX_HEADERS = 100;
/** Open connections of one pod; an idle one costs 12 kB (docs/decisions/0018 has the sum). */
export const MAX_CONNECTIONS = 12_000;
/**
 * Open connections of one address that is no trusted proxy: a twelfth of all, so that one client
 * leaves room for others. A client within its rate limit needs a few.
 */
export const MAX_CONNECTIONS_PER_ADDRESS = 1_000;
/**
 * Requests that wait on a connection behind the one being answered. Proxies do not pipeline, and
 * clients that do send a few; 64 kB read at once can hold 900 requests of 10 kB of memory each.
 */
export const MAX_PIPELINED = 16;
/** Longest answer to a broken request may take to leave before its socket is destroyed. */
export const BROKEN_ANSWER_MS = 1_000;

/**
 * What a 500 or 503 says in `Retry-After`: longer than most elections of a database, shorter than a
 * person's patience.
 */
export const RETRY_AFTER_SECONDS = 5;

/** Redis has this long to count a request; then the pod counts on its own. */
export const LIMITER_TIMEOUT_MS = 50;
/** While Redis is away it is asked this often whether it is back. */
export const LIMITER_PROBE_MS = 1_000;
/** Addresses and partners a pod counts on its own; the least recently seen go first. */
export const LIMITER_LOCAL_KEYS = 20_000;
/** Windows of the bounds that a partner's Secret may set. */
export const PARTNER_MINUTE_SECONDS = 60;
export const PARTNER_DAY_SECONDS = 86_400;

/**
 * Records of refused requests one process writes a second in the long run: 6 million in 7 days,
 * some 4 GB.
 */
export const REFUSALS_PER_SECOND = 10;
/** And at once: a partner whose key has a misprint is seen request by request. */
export const REFUSAL_BURST = 100;

/** A status look-up that MongoDB has not answered by then is answered 503. */
export const STATUS_TIMEOUT_MS = 2_000;
/** Connections of one pod for look-ups: at about a millisecond each, thousands a second. */
export const STATUS_CONNECTIONS = 8;
/**
 * Look-ups of one pod under way; beyond it a 503 at once. While MongoDB hangs each stays for the
 * whole time-out.
 */
export const STATUS_LOOKUPS = 256;

/**
 * Connections have this long to hear `Connection: close` in an answer before idle ones are closed:
 * a busy client pauses for less.
 */
export const LAST_ANSWERS_MS = 5_000;
/** Closing waits this long for requests in flight and for records and withdrawals under way. */
export const DRAIN_DEADLINE_MS = 20_000;

/** The log line of an outage of MongoDB comes at most this often, with one line for its end. */
export const OUTAGE_LINES_EVERY_MS = 10_000;
