/** Helpers for tests of the background work: submitting from outside, and worlds whose stores may be harmed. */
/* oxlint-disable node/no-process-env -- where test-stores.ts looks for the stores */
import { startMongo, startRedis, type Store } from '../../deploy/local/stores.ts';
import { send } from './http.ts';
import { requestIdOf, type World } from './world.ts';

/** Sends an application and gives its `request_id`; anything but a 202 is an error. */
export async function submit(world: World, ingest: { readonly url: string }, fields: object): Promise<string> {
  const answer = await send(ingest.url, { key: world.key, body: JSON.stringify(fields) });
  if (answer.status !== 202) throw new Error(`${answer.status} ${answer.text}`);
  return requestIdOf(answer);
}

/** How many records are in each state. */
export async function stateCounts(world: World): Promise<Record<string, number>> {
  const counts: Record<string, number> = {};
  for (const { state } of await world.records()) counts[state] = (counts[state] ?? 0) + 1;
  return counts;
}

export interface OwnStores {
  readonly mongo: Store | undefined;
  readonly redis: Store | undefined;
  /** After the world is closed, with the stores running. */
  stop(): Promise<void>;
}

/** Starts stores for this test file alone, which may then be killed; a world opened afterwards uses them. */
export async function startOwnStores(wanted: { readonly mongo?: true; readonly redis?: true }): Promise<OwnStores> {
  const options = { log: () => {} };
  const [mongo, redis] = await Promise.all([
    wanted.mongo === true ? startMongo(options) : undefined,
    wanted.redis === true ? startRedis(options) : undefined,
  ]);
  if (mongo !== undefined) process.env['TEST_MONGODB_URI'] = mongo.url;
  if (redis !== undefined) process.env['TEST_REDIS_URL'] = redis.url;
  return {
    mongo,
    redis,
    stop: async () => {
      await Promise.all([mongo?.stop(), redis?.stop()]);
    },
  };
}

