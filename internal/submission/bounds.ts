/** Bounds of this room, with the reason for each size. */

/** After a worker dies, its record waits this long. */
export const CLAIM_MS = 45_000;

/** The time for a withdrawal after an unclaimed record is first found due. */
export const FIRST_SIGHT_GRACE_MS = 15_000;
export const BACKLOG_TIMEOUT_MS = 5_000;
