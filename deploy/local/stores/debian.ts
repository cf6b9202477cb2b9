// The way without any server installed: FerretDB, PostgreSQL with DocumentDB, and Redis out of a
// cached Debian root file system.

import { mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import {
  debianObstacle,
  FERRETDB_VERSION,
  installFerretDb,
  installRoot,
  installTemplate,
  POSTGRESQL_BIN,
  POSTGRESQL_VERSION,
} from './install.ts';
import { run, startProcess, waitUntilUp, type ServerProcess } from './process.ts';
import { READY_TIMEOUT_MS } from './ready.ts';
import { DATA_IN_ROOT, inRoot, makeDataDir } from './root.ts';
import { redisArguments, runningStore, storeFolder } from './running.ts';
import type { Store, StoreOptions } from './store.ts';
import { freePort } from './wait.ts';

/**
 * DocumentDB lets inserts of equal keys under a unique index wait for each other, and PostgreSQL
 * ends one of them after this time. The 1 s it takes by itself is half of what ingest gives a
 * commit.
 */
const DEADLOCKS_END_SOON = ['-c', 'deadlock_timeout=20ms'];

const COPY_TIMEOUT_MS = 60_000;

/** Makes what both stores need, in parallel. Gives a sentence when this machine cannot. */
export async function installDebian(options: {
  mongo: boolean;
  log: (line: string) => void;
}): Promise<string | undefined> {
  const obstacle = await debianObstacle();
  if (obstacle !== undefined) return obstacle;
  if (options.mongo) await mongoParts(options.log);
  else await installRoot(options.log);
  return undefined;
}

async function mongoParts(
  log: (line: string) => void,
): Promise<{ root: string; ferretDb: string; template: string }> {
  const files = installRoot(log).then(async (root) => ({
    root,
    template: await installTemplate(root, log),
  }));
  // Both to their end, whatever becomes of the other: neither is cut off half-way, and the first
  // failure is reported.
  const [made, built] = await Promise.allSettled([files, installFerretDb(log)]);
  if (made.status === 'rejected') throw made.reason;
  if (built.status === 'rejected') throw built.reason;
  return { ...made.value, ferretDb: built.value };
}

/** FerretDB in front of PostgreSQL, together one store. */
export async function debianMongo({ log, ...options }: StoreOptions): Promise<Store> {
  const { root, ferretDb, template } = await mongoParts(log);
  const folder = await storeFolder('mongo');
  const data = join(options.data ?? folder, 'postgresql');
  await run({
    command: ['cp', '-a', '--reflink=auto', template, data],
    logFile: join(folder, 'copy.log'),
    timeoutMs: COPY_TIMEOUT_MS,
  });
  const port = await freePort();
  const innerPort = await freePort();
  const state = join(folder, 'ferretdb');
  await mkdir(state);

  async function startPostgresql(): Promise<ServerProcess> {
    const server = [
      `${POSTGRESQL_BIN}/postgres`,
      '-D',
      DATA_IN_ROOT,
      '-p',
      String(innerPort),
      ...DEADLOCKS_END_SOON,
      ...(options.postgresql ?? []).flatMap((setting) => ['-c', setting]),
    ];
    const postgresql = await startProcess({
      command: inRoot(root, data, 'postgres', server),
      logFile: join(folder, 'postgresql.log'),
      wrapped: true,
    });
    await waitUntilUp('PostgreSQL', postgresql, READY_TIMEOUT_MS, () => postgresqlReady(data));
    return postgresql;
  }
  async function startFerretDb(): Promise<ServerProcess> {
    return await startProcess({
      command: [
        ferretDb,
        `--listen-addr=127.0.0.1:${port}`,
        '--debug-addr=-',
        '--no-auth',
        '--telemetry=disable',
        `--postgresql-url=postgres://postgres@127.0.0.1:${innerPort}/postgres`,
        `--state-dir=${state}`,
        '--log-level=warn',
      ],
      logFile: join(folder, 'ferretdb.log'),
      wrapped: false,
    });
  }
  return await runningStore({
    protocol: 'mongodb',
    describe: () => `FerretDB ${FERRETDB_VERSION} over PostgreSQL ${POSTGRESQL_VERSION}`,
    port,
    folder,
    start: async (started) => {
      started.push(await startPostgresql());
      started.push(await startFerretDb());
    },
  });
}

/**
 * The last line of this file says when PostgreSQL takes connections; it is what pg_ctl waits for as
 * well.
 */
async function postgresqlReady(data: string): Promise<boolean> {
  const text = await readFile(join(data, 'postmaster.pid'), 'utf8').catch(() => '');
  return text.trimEnd().endsWith('ready');
}

/** Debian's redis-server. */
export async function debianRedis({ log, ...options }: StoreOptions): Promise<Store> {
  const root = await installRoot(log);
  const folder = await storeFolder('redis');
  const data = join(options.data ?? folder, 'redis');
  await makeDataDir(data, root, 'redis');
  const port = await freePort();
  const server = ['redis-server', ...redisArguments(DATA_IN_ROOT, port)];
  return await runningStore({
    protocol: 'redis',
    describe: (version) => `Redis ${version}`,
    port,
    folder,
    start: async (started) => {
      const logFile = join(folder, 'redis.log');
      const redis = await startProcess({
        command: inRoot(root, data, 'redis', server),
        logFile,
        wrapped: true,
      });
      started.push(redis);
    },
  });
}
