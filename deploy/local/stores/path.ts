// The way with servers that are installed on this machine: mongod and redis-server on the PATH.

import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { findProgram, startProcess } from './process.ts';
import { initiateReplicaSet, REPLICA_SET } from './ready.ts';
import { redisArguments, runningStore, storeFolder } from './running.ts';
import type { StoreOrReason } from './store.ts';
import { freePort } from './wait.ts';

/** A mongod of the PATH as a replica set of one member. */
export async function pathMongo(dataFolder?: string): Promise<StoreOrReason> {
  const mongod = await findProgram('mongod');
  if (mongod === undefined) return 'no mongod on the PATH';
  const folder = await storeFolder('mongo');
  const port = await freePort();
  const data = join(dataFolder ?? folder, 'mongod');
  await mkdir(data);
  return await runningStore({
    kind: 'path',
    protocol: 'mongodb',
    describe: (version) => `MongoDB ${version}`,
    port,
    folder,
    start: async (started) => {
      const command = [
        mongod,
        '--replSet',
        REPLICA_SET,
        '--bind_ip',
        '127.0.0.1',
        '--port',
        String(port),
        '--dbpath',
        data,
      ];
      started.push(
        await startProcess({
          command,
          logFile: join(folder, 'mongod.log'),
          wrapped: false,
        }),
      );
    },
    prepare: (url) => initiateReplicaSet(url, `127.0.0.1:${port}`),
  });
}

/** A redis-server of the PATH. */
export async function pathRedis(dataFolder?: string): Promise<StoreOrReason> {
  const redisServer = await findProgram('redis-server');
  if (redisServer === undefined) return 'no redis-server on the PATH';
  const folder = await storeFolder('redis');
  const port = await freePort();
  const data = join(dataFolder ?? folder, 'redis-server');
  await mkdir(data);
  return await runningStore({
    kind: 'path',
    protocol: 'redis',
    describe: (version) => `Redis ${version}`,
    port,
    folder,
    start: async (started) => {
      const command = [redisServer, '--port', String(port), '--dir', data, ...redisArguments()];
      started.push(
        await startProcess({
          command,
          logFile: join(folder, 'redis.log'),
          wrapped: false,
        }),
      );
    },
  });
}
