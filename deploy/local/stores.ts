/* oxlint-disable node/no-process-env -- as a program of its own it takes MONGODB_URI and REDIS_URL as its callers do */
// The stores for running and testing: MongoDB and Redis, of whatever this machine has. `node
// stores.ts install` prepares them.

import process from 'node:process';
import { debianMongo, debianRedis, installDebian } from './stores/debian.ts';
import {
  dockerImage,
  dockerMongo,
  dockerRedis,
  MONGO_IMAGE,
  REDIS_IMAGE,
} from './stores/docker.ts';
import { debianObstacle } from './stores/install.ts';
import { pathMongo, pathRedis } from './stores/path.ts';
import { findProgram } from './stores/process.ts';
import { mongoReady, redisReady } from './stores/ready.ts';
import {
  environmentStore,
  type Store,
  type StoreOptions,
  type StoreOrReason,
} from './stores/store.ts';
import { messageOf } from './stores/wait.ts';

export type { FaultSignal, Store, StoreKind, StoreOptions } from './stores/store.ts';

const ENVIRONMENT_TIMEOUT_MS = 20_000;
const MONGO = { name: 'MongoDB', variable: 'MONGODB_URI', program: 'mongod', image: MONGO_IMAGE };
const REDIS = { name: 'Redis', variable: 'REDIS_URL', program: 'redis-server', image: REDIS_IMAGE };

/**
 * Gives a MongoDB that answered a ping and acknowledged a write (where it comes from the
 * environment: a ping only).
 */
export async function startMongo(options: StoreOptions): Promise<Store> {
  if (isSet(options.url))
    return await fromEnvironment(MONGO, options.url, (url) =>
      mongoReady(url, false, ENVIRONMENT_TIMEOUT_MS),
    );
  return await firstOf(MONGO, [
    () => inDocker(options, dockerMongo),
    () => pathMongo(options.data),
    async () => (await debianObstacle(true)) ?? (await debianMongo(options)),
  ]);
}

/** Gives a Redis that answered PONG. */
export async function startRedis(options: StoreOptions): Promise<Store> {
  if (isSet(options.url))
    return await fromEnvironment(REDIS, options.url, (url) =>
      redisReady(url, ENVIRONMENT_TIMEOUT_MS),
    );
  return await firstOf(REDIS, [
    () => inDocker(options, dockerRedis),
    () => pathRedis(options.data),
    async () => (await debianObstacle(false)) ?? (await debianRedis(options)),
  ]);
}

async function inDocker(
  { data, log }: StoreOptions,
  start: (log: (line: string) => void) => Promise<StoreOrReason>,
): Promise<StoreOrReason> {
  return data === undefined ? await start(log) : 'its data would not lie in the folder asked for';
}

/**
 * Prepares what `startMongo` and `startRedis` will take with these addresses, starting nothing;
 * says what that is.
 */
export async function installStores(
  urls: { mongo?: string | undefined; redis?: string | undefined },
  log: (line: string) => void,
): Promise<void> {
  const wanted = [
    { store: MONGO, url: urls.mongo },
    { store: REDIS, url: urls.redis },
  ];
  for (const { store, url } of wanted) {
    if (isSet(url)) {
      log(`${store.name}: the server of ${store.variable}`);
      continue;
    }
    const way = await firstOf<{ way: string }>(store, [
      async () =>
        (await dockerImage(store.image, log)) ?? { way: `the Docker image ${store.image}` },
      async () => {
        const program = await findProgram(store.program);
        return program === undefined ? `no ${store.program} on the PATH` : { way: program };
      },
      async () =>
        (await installDebian({ mongo: store === MONGO, log })) ?? {
          way: 'packages of Debian in a cached root file system',
        },
    ]);
    log(`${store.name}: ${way.way}`);
  }
}

type Server = typeof MONGO;

function isSet(url: string | undefined): url is string {
  return url !== undefined && url !== '';
}

async function fromEnvironment(
  server: Server,
  url: string,
  ready: (url: string) => Promise<{ version: string }>,
): Promise<Store> {
  try {
    const { version } = await ready(url);
    return environmentStore(
      `${server.name} ${version} of ${server.variable}`,
      url,
      server.variable,
    );
  } catch (error) {
    throw new Error(
      `${server.variable} is set, but no ${server.name} answers there: ${messageOf(error)}`,
      {
        cause: error,
      },
    );
  }
}

async function firstOf<T extends object>(
  server: Server,
  ways: readonly (() => Promise<T | string>)[],
): Promise<T> {
  const reasons = [`${server.variable} is not set`];
  for (const way of ways) {
    const result = await way().catch(messageOf);
    if (typeof result !== 'string') return result;
    reasons.push(result);
  }
  throw new Error(
    [`there is no way to a ${server.name} here; any one of these can be changed:`, ...reasons].join(
      '\n  - ',
    ),
  );
}

async function main(args: readonly string[]): Promise<number> {
  const USAGE_ERROR = 2;
  if (args.join(' ') !== 'install') {
    console.error('usage: node deploy/local/stores.ts install');
    return USAGE_ERROR;
  }
  try {
    await installStores(
      { mongo: process.env['MONGODB_URI'], redis: process.env['REDIS_URL'] },
      (line) => console.log(line),
    );
    return 0;
  } catch (error) {
    console.error(messageOf(error));
    return 1;
  }
}

if (import.meta.main) process.exitCode = await main(process.argv.slice(2));
