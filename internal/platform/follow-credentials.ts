/**
 * A process whose credentials' files change drains and ends, and is started again with them.
 *
 * It does so only if the new ones are valid. A process that is ready also tries them first, waits
 * for its turn among its like, and leaves after everybody knows that it is not ready any more.
 */
import { once } from 'node:events';
import { allOf, type Probe } from './admin-server.ts';
import { ConfigError, type Found } from './config.ts';
import { pause, withDeadline } from './deadline.ts';
import type { Logger } from './log.ts';
import type { Loops } from './loop.ts';
import { connectMongo, createMongo, mongoReason } from './mongo.ts';
import { createRedis } from './redis.ts';

const LOOK_EVERY_MS = 5_000;
const RETRY = { firstMs: LOOK_EVERY_MS, capMs: 60_000 } as const;
const CONNECT_WITHIN_MS = 10_000;
const COMMAND_TIMEOUT_MS = 1_000;
/** Kubernetes sees within 10 s that a pod is not ready; slow load balancers need 30 s more. */
const WITHDRAW_MS = 45_000;
/** Until the successor is ready: the withdrawal, a drain, and a start. */
const TURN_MS = 90_000;
const FAILS_AFTER_MS = 30_000;

export interface Stores {
  readonly MONGODB_URI: string;
  readonly REDIS_URL?: string;
}

export interface Credentials {
  /** When each file that the process read at its start was written, by `NAME_FILE`. */
  readonly files: Found['files'];
  /** What the process would start with now, if that is something else. Throws `ConfigError`. */
  changed(): Stores | undefined;
  /** Drains and exits with 0, as a first signal does. */
  leave(): void;
}

export function followCredentials(parts: {
  readonly credentials?: Credentials | undefined;
  readonly process: string;
  readonly ready: Probe[];
  readonly loops: Pick<Loops<'credentials'>, 'start'>;
  readonly log: Logger;
}): void {
  const { credentials, process, ready, loops, log } = parts;
  if (credentials === undefined) return;
  let leaving = false;
  ready.push(() => (leaving ? ['leaving, to start again with changed credentials'] : []));
  loops.start({
    name: 'credentials',
    everyMs: LOOK_EVERY_MS,
    retry: RETRY,
    failsAfterMs: FAILS_AFTER_MS,
    reason: (error) => {
      const words = error instanceof ConfigError ? error.faults.join('; ') : 'see the log';
      return `the files with credentials changed, but not for use: ${words}`;
    },
    run: async (signal) => {
      const next = leaving ? undefined : credentials.changed();
      if (next === undefined) return;
      if ((await allOf(ready)).length === 0) {
        await tryMongo(next.MONGODB_URI, process);
        if (next.REDIS_URL !== undefined && !(await takeTurn(next.REDIS_URL, process, log))) return;
        leaving = true;
      }
      log.info({ withdrawn: leaving }, 'credentials changed; leaving');
      void pause(leaving ? WITHDRAW_MS : 0, signal).then(() => credentials.leave());
    },
  });
}

async function tryMongo(uri: string, process: string): Promise<void> {
  const mongo = createMongo(uri, 'partner-ingest credentials');
  try {
    await connectMongo(mongo, CONNECT_WITHIN_MS);
  } catch (error) {
    throw new ConfigError(process, [mongoReason(mongo, error)], { cause: error });
  } finally {
    await mongo.close();
  }
}

/** In the Redis of the new credentials, where all who leave meet. */
async function takeTurn(url: string, process: string, log: Logger): Promise<boolean> {
  const warnings: Probe[] = [];
  const redis = createRedis(url, { commandTimeoutMs: COMMAND_TIMEOUT_MS }, { log, warnings });
  try {
    await withDeadline(once(redis, 'ready'), CONNECT_WITHIN_MS, 'connecting');
    const key = `{partner-ingest}:leaving:${process}`;
    return (await redis.set(key, '', 'PX', TURN_MS, 'NX')) === 'OK';
  } catch (error) {
    const [words = 'Redis took too long to answer'] = await allOf(warnings);
    throw new ConfigError(process, [words], { cause: error });
  } finally {
    redis.disconnect();
  }
}
