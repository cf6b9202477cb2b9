/** Submits applications, and opens worlds whose stores may be harmed. */
/* oxlint-disable node/no-process-env -- where test-stores.ts looks for the stores */
import { startMongo, startRedis, type Store } from '../../deploy/local/stores.ts';
import type { SubmissionRecord } from '../../internal/submission/submission.ts';
import { send } from './http.ts';
import { eventually } from './wait.ts';
import { openWorld, requestIdOf, type World } from './world.ts';

/** A busy test machine may cause 500s. */
const SUBMIT_TRIES = 10;

/** Sends an application and returns its `request_id`; repeats after a 500. */
export async function submit(
  world: World,
  ingest: { readonly url: string },
  fields: object,
  key = world.key,
): Promise<string> {
  for (let tries = 1; ; tries += 1) {
    const answer = await send(ingest.url, { key, body: JSON.stringify(fields) });
    if (answer.status === 202) return requestIdOf(answer);
    if (answer.status !== 500 || tries === SUBMIT_TRIES)
      throw new Error(`${answer.status} ${answer.text}`);
  }
}

/** Waits until an attempt at the request has failed. */
export const failedOnce = (world: World, requestId: string): Promise<SubmissionRecord> =>
  eventually('a failed attempt', async () => {
    const record = await world.record(requestId);
    return record?.lastError === undefined ? undefined : record;
  });

/** Makes records due as after 30 s. */
export async function hurryReconcile(world: World, ids: readonly string[]): Promise<void> {
  await world.stores.requests.updateMany(
    { _id: { $in: [...ids] }, state: 'recorded', version: 0 },
    { $set: { dueAt: new Date(), firstSeenAt: new Date() } },
  );
}

/** Wakes a stopped store or starts a killed one, in `afterEach`. */
export async function heal(store: Store): Promise<void> {
  await store.signal('SIGCONT').catch(() => store.restart());
}

export type OwnWorld = Awaited<ReturnType<typeof openOwnWorld>>;

/** Opens a world on a MongoDB and a Redis of its own. */
export async function openOwnWorld(options: Parameters<typeof openWorld>[0] = {}) {
  const quiet = { log: () => {} };
  const [mongo, redis] = await Promise.all([startMongo(quiet), startRedis(quiet)]);
  const shared = {
    TEST_MONGODB_URI: process.env['TEST_MONGODB_URI'],
    TEST_REDIS_URL: process.env['TEST_REDIS_URL'],
  };
  Object.assign(process.env, { TEST_MONGODB_URI: mongo.url, TEST_REDIS_URL: redis.url });
  // `openWorld` reads the addresses before it first waits, so no other test sees them.
  const opening = openWorld(options);
  Object.assign(process.env, shared);
  const world = await opening;
  return {
    world,
    mongo,
    redis,
    /** Heals the stores, closes the world and ends the stores. */
    close: async () => {
      await Promise.all([heal(mongo), heal(redis)]);
      await world.close();
      await Promise.all([mongo.stop(), redis.stop()]);
    },
  };
}
