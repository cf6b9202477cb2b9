// A store that is made of server processes of this machine: starting, faults, restarting and
// stopping, the same for all of them.

import { rm } from 'node:fs/promises';
import { temporaryFolder } from './cache.ts';
import type { ServerProcess } from './process.ts';
import { mongoReady, READY_TIMEOUT_MS, redisReady } from './ready.ts';
import type { FaultSignal, Store } from './store.ts';
import { accepts, logTail, messageOf, poll } from './wait.ts';

/** Test files share a server, each with a database of its own. */
const REDIS_DATABASES = 256;

/** Where a store keeps its data and logs until it stops. */
export function storeFolder(name: string): Promise<string> {
  return temporaryFolder('partner-ingest-stores', `${name}-`);
}

/** Redis as in production: durable to about a second, and never dropping keys. */
export function redisArguments(dir: string, port: number, bind = '127.0.0.1'): string[] {
  const settings = {
    dir,
    port: String(port),
    bind,
    appendonly: 'yes',
    appendfsync: 'everysec',
    'maxmemory-policy': 'noeviction',
    save: '',
    databases: String(REDIS_DATABASES),
  };
  return Object.entries(settings).flatMap(([name, value]) => [`--${name}`, value]);
}

export interface Running {
  protocol: 'mongodb' | 'redis';
  describe(version: string): string;
  port: number;
  /** Removed when the store stops. */
  folder: string;
  /**
   * Starts the processes, each after the one it needs, and puts each on the list as soon as it
   * runs.
   */
  start(started: ServerProcess[]): Promise<void>;
  /** Done after each start, before readiness is asked. */
  prepare?(url: string): Promise<void>;
}

/**
 * Starts the processes and returns the store once it answers; ends what was started if that fails.
 */
export async function runningStore(running: Running): Promise<Store> {
  const { protocol, port, folder } = running;
  const url =
    protocol === 'mongodb'
      ? `mongodb://127.0.0.1:${port}/?directConnection=true`
      : `redis://127.0.0.1:${port}`;
  let started: ServerProcess[] = [];
  let stopping: Promise<void> | undefined;

  async function kill(): Promise<void> {
    // Those in front first. A stopped process (SIGSTOP) is killed as well.
    for (const one of started.toReversed()) {
      await one.signal('SIGKILL');
      await one.end('SIGKILL');
    }
  }
  async function start(): Promise<string> {
    started = [];
    try {
      await running.start(started);
      const ended = (): boolean => !started.every((one) => one.running());
      const answered = await poll(READY_TIMEOUT_MS, async () => ended() || (await accepts(port)));
      if (!answered || ended()) throw new Error(`nothing answers on port ${port}`);
      await running.prepare?.(url);
      return protocol === 'mongodb' ? await mongoReady(url, true) : await redisReady(url);
    } catch (error) {
      const log = started.at(-1)?.logFile;
      await kill();
      const variable = protocol === 'mongodb' ? 'MONGODB_URI' : 'REDIS_URL';
      const where = log === undefined ? '' : `; ${await logTail(log)}`;
      throw new Error(
        `the ${protocol} store did not start: ${messageOf(error)}${where}\n` +
          `Data and logs are in ${folder}. Try again, or set ${variable} to a server of your own.`,
        { cause: error },
      );
    }
  }

  async function end(): Promise<void> {
    await kill();
    await rm(folder, { recursive: true, force: true });
  }

  const version = await start();
  return {
    url,
    description: running.describe(version),
    async signal(signal: FaultSignal) {
      const inFront = started.toReversed();
      if (!inFront.some((one) => one.running()))
        throw new Error(`the ${protocol} store does not run: cannot send ${signal}`);
      // What is behind is woken before those in front, and stopped after them.
      for (const one of signal === 'SIGCONT' ? started : inFront) await one.signal(signal);
      if (signal === 'SIGKILL') for (const one of inFront) await one.end(signal);
    },
    async restart() {
      if (stopping !== undefined)
        throw new Error(`the ${protocol} store was stopped: start a new one`);
      await kill();
      await start();
    },
    async stop() {
      stopping ??= end();
      await stopping;
    },
  };
}
