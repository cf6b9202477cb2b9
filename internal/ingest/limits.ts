/** Every bound of the partner port, with the reason for its size. */

/** SPEC §2.1: bytes, not characters. */
export const MAX_BODY_BYTES = 65_000;
/**
 * Bodies on their way, all together: 500 of the largest at once. 10,000 partners that each hold one back would take 650 MB;
 * beyond this bound the one that has been on its way longest gets the 500.
 */
export const MAX_INCOMING_BYTES = 32 * 1024 * 1024;
/** What is read and thrown away of a body nobody wants, so that the partner reads our answer and not a reset. */
export const DRAIN_MAX_BYTES = 16 * 1024 * 1024;
/** How long that may take. */
export const DRAIN_MAX_MS = 5_000;
/** From the headers to the end of the body. 65 kB in ten seconds is slower than any modem. */
export const BODY_TIMEOUT_MS = 10_000;
/** From the first byte of a request to the end of its headers. */
export const HEADERS_TIMEOUT_MS = 10_000;
/** Node's own bound over a whole request; above ours, so that ours gets to answer and record. */
export const REQUEST_TIMEOUT_MS = 30_000;
/** How often Node looks for requests over these bounds (its default of 30 s would let 10 s become 40). */
export const CONNECTIONS_CHECK_MS = 1_000;
/** All headers together: room for a long key and tracing headers, no room for abuse. */
export const MAX_HEADER_BYTES = 16 * 1024;
/** A request with as many headers or more is refused: small ones take ten times their bytes, and Node drops what is beyond. */
export const MAX_HEADERS = 100;
/** Open connections of one pod; an idle one costs 12 kB (docs/decisions/0018 has the sum). */
export const MAX_CONNECTIONS = 12_000;
/**
 * Requests of all connections that came before the one before them was answered. Proxies do not pipeline, so none of ours
 * does; 64 kB read at once can hold 900 requests, and a thousand connections could send that in the same moment.
 */
export const MAX_PIPELINED = 4_096;
/** Longest answer to a broken request may take to leave before its socket is destroyed. */
export const BROKEN_ANSWER_MS = 1_000;

/** User-Agent and Content-Type are kept for support, up to this many characters. */
export const KEPT_HEADER_CHARACTERS = 256;

/** Redis has this long to count a request; then the pod counts on its own. */
export const LIMITER_TIMEOUT_MS = 50;
/** While Redis is away it is asked this often whether it is back. */
export const LIMITER_PROBE_MS = 1_000;
/** Addresses a pod remembers on its own; the least recently seen go first. */
export const LIMITER_LOCAL_ADDRESSES = 20_000;

/** Addresses over their limit that are counted one by one in a flush; more go into one total. */
export const OVER_LIMIT_ADDRESSES = 10_000;
/** First ids kept of an address and window. */
export const OVER_LIMIT_IDS = 20;
/** How often the counts are written. */
export const OVER_LIMIT_FLUSH_MS = 5_000;
/** A write of the counts that is not answered by then is given up. */
export const OVER_LIMIT_DEADLINE_MS = 10_000;

/** A status look-up that MongoDB has not answered by then is answered 503. */
export const STATUS_TIMEOUT_MS = 2_000;
/** Connections of one pod for look-ups: at about a millisecond each, thousands a second. */
export const STATUS_CONNECTIONS = 8;
/** Look-ups of one pod under way; beyond it a 503 at once. While MongoDB hangs each stays for the whole time-out. */
export const STATUS_LOOKUPS = 256;

/** Clients in use of a connection have this long to hear `Connection: close` in an answer before idle ones are closed. */
export const LAST_ANSWERS_MS = 1_000;
/** Closing waits this long for requests in flight and for records and withdrawals under way. */
export const DRAIN_DEADLINE_MS = 20_000;
