/**
 * How the MongoDB clients of ingest differ from others: each fails in its own time, and takes no
 * connection from the rest.
 */
import type { MongoClientOptions } from 'mongodb';
import { groupCommitLimits } from './limits.ts';

/**
 * For group commit: the socket time-out destroys a hung connection just when its batch gives up.
 */
export function commitClient(timeoutMs: number): MongoClientOptions {
  return {
    retryWrites: false,
    ...within(timeoutMs),
    maxPoolSize: groupCommitLimits.maxInFlight + 1,
  };
}

/** For look-ups. */
export function statusClient(timeoutMs: number, connections: number): MongoClientOptions {
  return { ...within(timeoutMs), maxPoolSize: connections };
}

function within(timeoutMs: number): MongoClientOptions {
  return {
    socketTimeoutMS: timeoutMs,
    serverSelectionTimeoutMS: timeoutMs,
    waitQueueTimeoutMS: timeoutMs,
  };
}
