// Says when a store is really ready: through the same drivers as the service, with a write where
// the server is ours.

import { Redis } from 'ioredis';
import { MongoClient, MongoServerError } from 'mongodb';
import { accepts, poll, retried } from './wait.ts';

export const REPLICA_SET = 'rs0';
export const READY_TIMEOUT_MS = 60_000;
const ATTEMPT_TIMEOUT_MS = 5_000;
const READINESS_DATABASE = 'stores_readiness';
const ALREADY_INITIALIZED = 23;

export interface Readiness {
  /** What the server says about its version. */
  version: string;
}

/**
 * Waits for the port, ending early when the server has ended. Gives false when the time is over.
 */
export async function portAnswers(
  port: number,
  running: () => boolean,
  timeoutMs = READY_TIMEOUT_MS,
): Promise<boolean> {
  const answered = await poll(timeoutMs, async () => !running() || (await accepts(port)));
  return answered && running();
}

/**
 * Pings MongoDB and, where `write` is set, waits until a write was acknowledged. Throws what the
 * driver threw last.
 */
export async function mongoReady(
  url: string,
  write: boolean,
  timeoutMs = READY_TIMEOUT_MS,
): Promise<Readiness> {
  return await retried(timeoutMs, () =>
    withMongo(url, async (client) => {
      await client.db('admin').command({ ping: 1 });
      if (write) {
        const collection = client
          .db(READINESS_DATABASE)
          .collection<{ _id: string; at: Date }>('ready');
        const options = { upsert: true, writeConcern: { w: 'majority' as const } };
        await collection.updateOne({ _id: 'ready' }, { $set: { at: new Date() } }, options);
      }
      const info = await client.db('admin').command({ buildInfo: 1 });
      return { version: String(info['version']) };
    }),
  );
}

/**
 * Makes a single-node replica set of a fresh `mongod`; does nothing when it is one. `member` is the
 * address it knows itself by.
 */
export async function initiateReplicaSet(url: string, member: string): Promise<void> {
  await retried(READY_TIMEOUT_MS, () =>
    withMongo(url, async (client) => {
      try {
        await client
          .db('admin')
          .command({ replSetInitiate: { _id: REPLICA_SET, members: [{ _id: 0, host: member }] } });
      } catch (error) {
        if (!(error instanceof MongoServerError && error.code === ALREADY_INITIALIZED)) throw error;
      }
    }),
  );
}

/** A client of its own for each attempt: one that could not connect stays closed. */
async function withMongo<T>(url: string, use: (client: MongoClient) => Promise<T>): Promise<T> {
  const client = new MongoClient(url, {
    serverSelectionTimeoutMS: ATTEMPT_TIMEOUT_MS,
    connectTimeoutMS: ATTEMPT_TIMEOUT_MS,
    maxPoolSize: 1,
  });
  try {
    return await use(client);
  } finally {
    await client.close();
  }
}

/** Pings Redis until it answers PONG (not LOADING). Throws what the client threw last. */
export async function redisReady(url: string, timeoutMs = READY_TIMEOUT_MS): Promise<Readiness> {
  return await retried(timeoutMs, async () => {
    const redis = new Redis(url, {
      lazyConnect: true,
      retryStrategy: () => null,
      connectTimeout: ATTEMPT_TIMEOUT_MS,
      commandTimeout: ATTEMPT_TIMEOUT_MS,
      maxRetriesPerRequest: 0,
    });
    // The event says why; the rejection only that the connection is closed.
    let reason: Error | undefined;
    redis.on('error', (error: Error) => (reason ??= error));
    try {
      await redis.connect();
      await redis.ping();
      const version = /^redis_version:(.*)$/m.exec(await redis.info('server'))?.[1]?.trim();
      return { version: version ?? 'of unknown version' };
    } catch (error) {
      throw reason ?? error;
    } finally {
      redis.disconnect();
    }
  });
}
