// The way with servers that are installed on this machine: mongod and redis-server on the PATH.

import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { findProgram, startProcess } from './process.ts';
import { initiateReplicaSet, REPLICA_SET } from './ready.ts';
import { redisArguments, runningStore, storeFolder, type Running } from './running.ts';
import type { StoreOrReason } from './store.ts';
import { freePort } from './wait.ts';

/** A mongod of the PATH as a replica set of one member. */
export function pathMongo(dataFolder?: string): Promise<StoreOrReason> {
  return onPath('mongod', dataFolder, {
    protocol: 'mongodb',
    describe: (version) => `MongoDB ${version}`,
    argumentsFor: (port, data) => [
      '--replSet',
      REPLICA_SET,
      '--bind_ip',
      '127.0.0.1',
      '--port',
      String(port),
      '--dbpath',
      data,
    ],
    prepare: (url) => initiateReplicaSet(url, new URL(url).host),
  });
}

/** A redis-server of the PATH. */
export function pathRedis(dataFolder?: string): Promise<StoreOrReason> {
  return onPath('redis-server', dataFolder, {
    protocol: 'redis',
    describe: (version) => `Redis ${version}`,
    argumentsFor: (port, data) => redisArguments(data, port),
  });
}

async function onPath(
  name: string,
  dataFolder: string | undefined,
  {
    argumentsFor,
    ...store
  }: Pick<Running, 'protocol' | 'describe' | 'prepare'> & {
    readonly argumentsFor: (port: number, data: string) => string[];
  },
): Promise<StoreOrReason> {
  const program = await findProgram(name);
  if (program === undefined) return `no ${name} on the PATH`;
  const folder = await storeFolder(store.protocol);
  const port = await freePort();
  const data = join(dataFolder ?? folder, name);
  await mkdir(data);
  return await runningStore({
    ...store,
    port,
    folder,
    start: async (started) => {
      const command = [program, ...argumentsFor(port, data)];
      const logFile = join(folder, `${name}.log`);
      started.push(await startProcess({ command, logFile, wrapped: false }));
    },
  });
}
