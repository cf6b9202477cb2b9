// The way with a Docker engine: the real servers as containers of testcontainers, which removes
// them whatever becomes of us.

import { mkdir, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { ContainerRuntimeClient, StartedTestContainer } from 'testcontainers';
import { withDeadline } from '../../../internal/platform/process/deadline.ts';
import { cacheDir } from './cache.ts';
import { initiateReplicaSet, mongoReady, REPLICA_SET, redisReady } from './ready.ts';
import { redisArguments } from './running.ts';
import type { FaultSignal, Store, StoreOrReason } from './store.ts';
import { freePort, messageOf } from './wait.ts';

export const MONGO_IMAGE = 'docker.io/library/mongo:8';
export const REDIS_IMAGE = 'docker.io/library/redis:7';
const MONGO_PORT = 27_017;
const REDIS_PORT = 6_379;
/** A socket that nobody serves says so at once; an address may keep silent. */
const ENGINE_TIMEOUT_MS = 10_000;
const PULL_TIMEOUT_MS = 3 * 60_000;
const PULL_AGAIN_AFTER_MS = 30 * 60_000;
const START_TIMEOUT_MS = 90_000;
const STOP_TIMEOUT_MS = 10_000;
const EVERY_ADDRESS = '0.0.0.0';

/**
 * Makes the image be there. Gives a sentence when there is no engine or the image cannot be had in
 * time.
 */
export async function dockerImage(
  image: string,
  log: (line: string) => void,
): Promise<string | undefined> {
  // Loaded late, because it takes a third of a second.
  const { getContainerRuntimeClient, ImageName } = await import('testcontainers');
  let images: ContainerRuntimeClient['image'];
  try {
    const client = getContainerRuntimeClient();
    ({ image: images } = await withDeadline(client, ENGINE_TIMEOUT_MS, 'to find an engine'));
  } catch {
    return 'no Docker engine answers';
  }
  // Where the registry cannot be reached each attempt may take long, so that one in a while has to
  // do for all starts.
  const failed = join(cacheDir(), `no-${image.replaceAll(/\W/g, '-')}`);
  try {
    const name = ImageName.fromString(image);
    if (await images.exists(name)) return undefined;
    if (await youngerThan(PULL_AGAIN_AFTER_MS, failed)) {
      return `a Docker engine answers, but could not pull ${image} a while ago (remove ${failed} to try again now)`;
    }
    log(`pulling ${image} …`);
    await withDeadline(images.pull(name), PULL_TIMEOUT_MS, 'pulling it');
    // A pull that failed halfway ends like one that succeeded.
    if (!(await images.exists(name))) throw new Error('it could not be pulled');
    return undefined;
  } catch (error) {
    await mkdir(cacheDir(), { recursive: true });
    await writeFile(failed, messageOf(error));
    return skipped(image, error, log);
  }
}

async function youngerThan(ageMs: number, file: string): Promise<boolean> {
  const found = await stat(file).catch(() => undefined);
  return found !== undefined && Date.now() - found.mtimeMs < ageMs;
}

function skipped(image: string, error: unknown, log: (line: string) => void): string {
  const [message = ''] = messageOf(error).split('\n');
  const reason = `a Docker engine answers, but ${image} could not be used: ${message.trim()}`;
  log(`${reason}; going on without Docker`);
  return reason;
}

interface Server {
  image: string;
  port: number;
  command: string[];
  url(host: string, port: number): string;
  ready(url: string): Promise<string>;
  describe(version: string): string;
}

/** MongoDB in a container, as a replica set of one member. */
export async function dockerMongo(log: (line: string) => void): Promise<StoreOrReason> {
  return await container(log, {
    image: MONGO_IMAGE,
    port: MONGO_PORT,
    command: ['mongod', '--replSet', REPLICA_SET, '--bind_ip_all'],
    url: (host, port) => `mongodb://${host}:${port}/?directConnection=true`,
    ready: async (url) => {
      await initiateReplicaSet(url, `127.0.0.1:${MONGO_PORT}`);
      return await mongoReady(url, true);
    },
    describe: (version) => `MongoDB ${version} in Docker`,
  });
}

/** Redis in a container. */
export async function dockerRedis(log: (line: string) => void): Promise<StoreOrReason> {
  return await container(log, {
    image: REDIS_IMAGE,
    port: REDIS_PORT,
    // Inside the container every address must answer, for the engine to reach it; the data
    // directory is the image's own.
    command: [
      'redis-server',
      ...redisArguments('/data', REDIS_PORT, EVERY_ADDRESS),
      '--protected-mode',
      'no',
    ],
    url: (host, port) => `redis://${host}:${port}`,
    ready: redisReady,
    describe: (version) => `Redis ${version} in Docker`,
  });
}

async function container(log: (line: string) => void, server: Server): Promise<StoreOrReason> {
  const reason = await dockerImage(server.image, log);
  if (reason !== undefined) return reason;
  // A port of our own choice, because one that the engine chooses changes with every restart.
  const port = await freePort();
  let started: StartedTestContainer;
  try {
    const { GenericContainer } = await import('testcontainers');
    const starting = new GenericContainer(server.image)
      .withCommand(server.command)
      .withExposedPorts({ container: server.port, host: port })
      .withStartupTimeout(START_TIMEOUT_MS)
      .start();
    started = await withDeadline(starting, START_TIMEOUT_MS, 'to start a container');
  } catch (error) {
    return skipped(server.image, error, log);
  }
  const host = started.getHost() === 'localhost' ? '127.0.0.1' : started.getHost();
  const url = server.url(host, port);
  try {
    const version = await server.ready(url);
    return await containerStore(server, started, url, server.describe(version));
  } catch (error) {
    await started.stop();
    throw new Error(
      `${server.image} was started by Docker but did not answer at ${url}: ${messageOf(error)}`,
      {
        cause: error,
      },
    );
  }
}

async function containerStore(
  server: Server,
  started: StartedTestContainer,
  url: string,
  description: string,
): Promise<Store> {
  const { getContainerRuntimeClient } = await import('testcontainers');
  const one = (await getContainerRuntimeClient()).container.getById(started.getId());
  let stopping: Promise<void> | undefined;

  /** Says whether it runs, and wakes it: engines refuse to kill or stop what is paused. */
  async function awake(): Promise<boolean> {
    const { State: state } = await one.inspect();
    if (state.Paused) await one.unpause();
    return state.Running;
  }
  async function kill(): Promise<void> {
    if (!(await awake())) return;
    const gone = one.wait();
    await one.kill({ signal: 'SIGKILL' });
    await gone;
  }
  async function end(): Promise<void> {
    await awake();
    await started.stop({ timeout: STOP_TIMEOUT_MS });
  }
  return {
    description,
    url,
    async signal(signal: FaultSignal) {
      if (signal === 'SIGKILL') await kill();
      else if (signal === 'SIGSTOP') await one.pause();
      else if (!(await awake())) throw new Error(`${description} has ended`);
    },
    async restart() {
      await kill();
      await one.start();
      await server.ready(url);
    },
    async stop() {
      stopping ??= end();
      await stopping;
    },
  };
}
