/* oxlint-disable node/no-process-env -- as a program of its own it takes MONGODB_URI and REDIS_URL as its callers do */
// The stores for running and testing: MongoDB and Redis, of whatever this machine has. `node
// stores.ts install` prepares them.

import process from 'node:process';
import { archiveMongod } from './stores/archive.ts';
import { debianMongo, debianRedis, installDebian } from './stores/debian.ts';
import {
  dockerImage,
  dockerMongo,
  dockerRedis,
  MONGO_IMAGE,
  REDIS_IMAGE,
} from './stores/docker.ts';
import { debianObstacle, hasFerretDb } from './stores/install.ts';
import { programMongo, programRedis } from './stores/program.ts';
import { findProgram } from './stores/process.ts';
import { mongoReady, redisReady } from './stores/ready.ts';
import { environmentStore, type Store, type StoreOptions } from './stores/store.ts';
import { messageOf } from './stores/wait.ts';

export type { FaultSignal, Store, StoreOptions } from './stores/store.ts';

const ENVIRONMENT_TIMEOUT_MS = 20_000;
const MONGO = {
  name: 'MongoDB',
  variable: 'MONGODB_URI',
  /** Each gives the path of the server's program, or throws why there is none. */
  programs: [() => onPath('mongod'), mongodOfArchive],
  image: MONGO_IMAGE,
  ready: (url: string) => mongoReady(url, false, ENVIRONMENT_TIMEOUT_MS),
  docker: dockerMongo,
  program: programMongo,
  debian: debianMongo,
};
const REDIS: typeof MONGO = {
  name: 'Redis',
  variable: 'REDIS_URL',
  programs: [() => onPath('redis-server')],
  image: REDIS_IMAGE,
  ready: (url: string) => redisReady(url, ENVIRONMENT_TIMEOUT_MS),
  docker: dockerRedis,
  program: programRedis,
  debian: debianRedis,
};

/**
 * Gives a MongoDB that answered a ping and acknowledged a write (where it comes from the
 * environment: a ping only).
 */
export function startMongo(options: StoreOptions): Promise<Store> {
  return start(MONGO, options);
}

/** Gives a Redis that answered PONG. */
export function startRedis(options: StoreOptions): Promise<Store> {
  return start(REDIS, options);
}

async function start(server: Server, options: StoreOptions): Promise<Store> {
  const { url, data, log } = options;
  if (isSet(url)) return await fromEnvironment(server, url);
  return await firstOf(server, [
    async () =>
      data === undefined
        ? await server.docker(log)
        : 'its data would not lie in the folder asked for',
    ...server.programs.map((find) => async () => server.program(await find(log), data)),
    async () => (await debianObstacle()) ?? (await server.debian(options)),
  ]);
}

/**
 * Prepares what `startMongo` and `startRedis` will take with these addresses, starting nothing;
 * says what that is.
 */
export async function installStores(
  urls: { mongo?: string | undefined; redis?: string | undefined },
  log: (line: string) => void,
): Promise<void> {
  for (const [server, url] of [
    [MONGO, urls.mongo],
    [REDIS, urls.redis],
  ] as const) {
    if (isSet(url)) {
      log(`${server.name}: the server of ${server.variable}`);
      continue;
    }
    const way = await firstOf<{ way: string }>(server, [
      async () =>
        (await dockerImage(server.image, log)) ?? { way: `the Docker image ${server.image}` },
      ...server.programs.map((find) => async () => ({ way: await find(log) })),
      async () =>
        (await installDebian({ mongo: server === MONGO, log })) ?? {
          way: 'packages of Debian in a cached root file system',
        },
    ]);
    log(`${server.name}: ${way.way}`);
  }
}

type Server = typeof MONGO;

function isSet(url: string | undefined): url is string {
  return url !== undefined && url !== '';
}

async function onPath(name: string): Promise<string> {
  const program = await findProgram(name);
  if (program === undefined) throw new Error(`no ${name} on the PATH`);
  return program;
}

async function mongodOfArchive(log: (line: string) => void): Promise<string> {
  if (await hasFerretDb()) throw new Error('FerretDB, which is here, is taken before an archive');
  try {
    return await archiveMongod(log);
  } catch (error) {
    log(`${messageOf(error)}; going on without MongoDB's archive`);
    throw error;
  }
}

async function fromEnvironment({ name, variable, ready }: Server, url: string): Promise<Store> {
  try {
    return environmentStore(`${name} ${await ready(url)} of ${variable}`, url, variable);
  } catch (error) {
    throw new Error(`${variable} is set, but no ${name} answers there: ${messageOf(error)}`, {
      cause: error,
    });
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

if (import.meta.main) {
  try {
    if (process.argv[2] !== 'install')
      throw new Error('usage: node deploy/local/stores.ts install');
    await installStores(
      { mongo: process.env['MONGODB_URI'], redis: process.env['REDIS_URL'] },
      (line) => console.log(line),
    );
  } catch (error) {
    console.error(messageOf(error));
    process.exitCode = 1;
  }
}
