/** Options of ingest's MongoDB clients. */
import type { MongoClientOptions } from 'mongodb';
import { groupCommitLimits } from './group-commit.ts';

export function commitClient(timeoutMs: number): MongoClientOptions {
  return {
    retryWrites: false,
    ...within(timeoutMs),
    maxPoolSize: groupCommitLimits.maxInFlight + 1,
  };
}

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
