// Says when a store is really ready: through the same drivers as the service, with a write where
// the server is ours.

import { Redis } from 'ioredis';
import { MongoClient, MongoServerError } from 'mongodb';
import { retried } from './wait.ts';

export const REPLICA_SET = 'rs0';
export const READY_TIMEOUT_MS = 60_000;
const ATTEMPT_TIMEOUT_MS = 5_000;
const READINESS_DATABASE = 'stores_readiness';
const ALREADY_INITIALIZED = 23;

/**
 * Pings MongoDB and, where `write` is set, waits until a write was acknowledged. Resolves to its
 * version; throws what the driver threw last.
 */
export async function mongoReady(
  url: string,
  write: boolean,
  timeoutMs = READY_TIMEOUT_MS,
): Promise<string> {
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
      return String(info['version']);
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

/**
 * Pings Redis until it answers PONG (not LOADING). Resolves to its version; throws what the client
 * threw last.
 */
export async function redisReady(url: string, timeoutMs = READY_TIMEOUT_MS): Promise<string> {
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
      const [, version] = /^redis_version:(.*)$/m.exec(await redis.info('server')) ?? [];
      return version?.trim() ?? 'of unknown version';
    } catch (error) {
      throw reason ?? error;
    } finally {
      redis.disconnect();
    }
  });
}
