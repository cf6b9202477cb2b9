// The way with a program of the server: mongod or redis-server.

import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { startProcess } from './process.ts';
import { initiateReplicaSet, REPLICA_SET } from './ready.ts';
import { redisArguments, runningStore, storeFolder, type Running } from './running.ts';
import type { Store } from './store.ts';
import { freePort } from './wait.ts';

/** This mongod as a replica set of one member. */
export function programMongo(program: string, dataFolder?: string): Promise<Store> {
  return startProgram(program, 'mongod', dataFolder, {
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

/** This redis-server. */
export function programRedis(program: string, dataFolder?: string): Promise<Store> {
  return startProgram(program, 'redis-server', dataFolder, {
    protocol: 'redis',
    describe: (version) => `Redis ${version}`,
    argumentsFor: (port, data) => redisArguments(data, port),
  });
}

async function startProgram(
  program: string,
  name: string,
  dataFolder: string | undefined,
  {
    argumentsFor,
    ...store
  }: Pick<Running, 'protocol' | 'describe' | 'prepare'> & {
    readonly argumentsFor: (port: number, data: string) => string[];
  },
): Promise<Store> {
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
