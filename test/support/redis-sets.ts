/**
 * Redis with failover: Sentinels over a primary and replicas, and a Cluster, with TLS and a login.
 */
import { copyFile, chmod, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { installRoot } from '../../deploy/local/stores/install.ts';
import {
  findProgram,
  startProcess,
  type ServerProcess,
} from '../../deploy/local/stores/process.ts';
import { DATA_IN_ROOT, inRoot, makeDataDir } from '../../deploy/local/stores/root.ts';
import { storeFolder } from '../../deploy/local/stores/running.ts';
import type { FaultSignal } from '../../deploy/local/stores/store.ts';
import { freePort } from '../../deploy/local/stores/wait.ts';
import { withDeadline } from '../../internal/platform/process/deadline.ts';
import { makeCertificate } from './certificate.ts';
import { eventually } from './wait.ts';

const READY_MS = 60_000;
const ANSWER_MS = 500;
/** A failover begins after this time. */
const DOWN_AFTER_MS = 1_500;
const SLOTS = 16_384;
const PRIMARY_NAME = 'mymaster';
const LOGIN = { username: 'service', password: 'p@ss:w/rd%1' } as const;
const ENCODED_PASSWORD = encodeURIComponent(LOGIN.password);
const URL_LOGIN = `${LOGIN.username}:${ENCODED_PASSWORD}@`;

export interface RedisMember {
  readonly port: number;
  readonly client: Redis;
  signal(signal: FaultSignal): Promise<void>;
  /** Starts it again with its data, and kills it first if it runs. */
  restart(): Promise<void>;
}

export interface RedisSet {
  readonly url: string;
  /** The primary that has this key; rejects while there is none. */
  primary(key: string): Promise<RedisMember>;
  /** The members with data, without Sentinels. */
  readonly members: readonly RedisMember[];
  readonly ca: string;
  stop(): Promise<void>;
}

export async function startRedisSentinel(): Promise<RedisSet> {
  const servers = await openServers('redis-sentinel');
  try {
    const members: RedisMember[] = [];
    for (let index = 0; index < 3; index += 1) {
      const first = members[0];
      members.push(
        await servers.start(first === undefined ? [] : [`replicaof 127.0.0.1 ${first.port}`]),
      );
    }
    const [first] = members;
    const sentinels = await Promise.all(
      [0, 1, 2].map(() => servers.start(sentinelLines(first!.port), true)),
    );
    await eventually(
      'the Sentinels to know each other and the replicas',
      async () => {
        for (const { client } of sentinels) {
          const known = toObject(await client.call('sentinel', 'master', PRIMARY_NAME));
          if (known['num-other-sentinels'] !== '2' || known['num-slaves'] !== '2') return false;
        }
        return true;
      },
      READY_MS,
    );
    const hosts = sentinels.map(({ port }) => `127.0.0.1:${port}`).join(',');
    return {
      url:
        `rediss+sentinel://${URL_LOGIN}${hosts}/0?name=${PRIMARY_NAME}` +
        `&sentinel_username=${LOGIN.username}&sentinel_password=${ENCODED_PASSWORD}`,
      members,
      ca: servers.ca,
      primary: async () => {
        // A member that is back may believe for a while that it is the primary.
        const [, port] = (await sentinels[0]!.client.call(
          'sentinel',
          'get-master-addr-by-name',
          PRIMARY_NAME,
        )) as string[];
        const primary = members.find((member) => member.port === Number(port))!;
        if (!(await answer(primary.client.info('replication'))).includes('role:master'))
          throw new Error('not yet');
        return primary;
      },
      stop: servers.stop,
    };
  } catch (error) {
    await servers.stop();
    throw error;
  }
}

export async function startRedisCluster(): Promise<RedisSet> {
  const servers = await openServers('redis-cluster');
  try {
    const lines = [
      'cluster-enabled yes',
      'cluster-config-file nodes.conf',
      `cluster-node-timeout ${DOWN_AFTER_MS}`,
      'cluster-replica-validity-factor 0',
      'tls-cluster yes',
    ];
    const busPorts = await Promise.all(Array.from({ length: 6 }, freePort));
    const members = await Promise.all(
      busPorts.map((bus) => servers.start([...lines, `cluster-port ${bus}`])),
    );
    const size = Math.ceil(SLOTS / 3);
    for (const [index, { client }] of members.entries()) {
      await client.cluster('SET-CONFIG-EPOCH', index + 1);
      if (index < 3) {
        await client.cluster(
          'ADDSLOTSRANGE',
          index * size,
          Math.min(SLOTS, (index + 1) * size) - 1,
        );
      }
      if (index > 0)
        await client.call('cluster', 'meet', '127.0.0.1', members[0]!.port, busPorts[0]!);
    }
    const info = async ({ client }: RedisMember, words: string): Promise<boolean> =>
      (await client.cluster('INFO')).includes(words);
    const all = (words: string) => async () =>
      (await Promise.all(members.map((member) => info(member, words)))).every(Boolean);
    await eventually('the nodes to know each other', all('cluster_known_nodes:6'), READY_MS);
    for (const [index, { client }] of members.slice(3).entries()) {
      const id = await members[index]!.client.cluster('MYID');
      await eventually(
        'the replica to know its primary',
        async () => (await client.cluster('REPLICATE', id)) === 'OK',
      );
    }
    await eventually('the Cluster to be well', all('cluster_state:ok'), READY_MS);
    await eventually(
      'the replicas to be in step',
      async () => {
        const roles = await Promise.all(
          members.slice(3).map(({ client }) => client.info('replication')),
        );
        return roles.every((text) => text.includes('master_link_status:up'));
      },
      READY_MS,
    );
    const hosts = members.map(({ port }) => `127.0.0.1:${port}`).join(',');
    return {
      url: `rediss+cluster://${URL_LOGIN}${hosts}`,
      members,
      ca: servers.ca,
      primary: async (key) => {
        for (const member of members) {
          const slot = await answer(member.client.cluster('KEYSLOT', key)).catch(() => NaN);
          const own = await answer(member.client.cluster('NODES').then(String)).catch(() => '');
          const line = own
            .split('\n')
            .find((one) => one.includes('myself') && one.includes('master'));
          const ranges = line?.split(' ').slice(8) ?? [];
          const mine = ranges.some((range) => {
            const [from = NaN, to = from] = range.split('-').map(Number);
            return from <= slot && slot <= to;
          });
          if (mine) return member;
        }
        throw new Error('nobody has the slot of the queues');
      },
      stop: servers.stop,
    };
  } catch (error) {
    await servers.stop();
    throw error;
  }
}

function sentinelLines(primaryPort: number): string[] {
  return [
    `sentinel monitor ${PRIMARY_NAME} 127.0.0.1 ${primaryPort} 2`,
    `sentinel down-after-milliseconds ${PRIMARY_NAME} ${DOWN_AFTER_MS}`,
    `sentinel failover-timeout ${PRIMARY_NAME} 5000`,
    `sentinel auth-user ${PRIMARY_NAME} ${LOGIN.username}`,
    `sentinel auth-pass ${PRIMARY_NAME} ${LOGIN.password}`,
    `sentinel sentinel-user ${LOGIN.username}`,
    `sentinel sentinel-pass ${LOGIN.password}`,
  ];
}

/** A stopped member does not answer. */
function answer<T>(promise: Promise<T>): Promise<T> {
  return withDeadline(promise, ANSWER_MS, 'an answer');
}

function toObject(reply: unknown): Record<string, string> {
  const flat = Array.isArray(reply) ? (reply as string[]) : Object.entries(reply as object).flat();
  return Object.fromEntries(
    Array.from({ length: flat.length / 2 }, (_, index) => [
      flat[2 * index]!,
      String(flat[2 * index + 1]),
    ]),
  );
}

/** Servers that are stopped together, each with a folder. */
async function openServers(name: string) {
  const folder = await storeFolder(name);
  const program = await findProgram('redis-server');
  const root = program === undefined ? await installRoot(() => {}) : undefined;
  const started: { member: RedisMember; process: () => ServerProcess }[] = [];
  const ca = join(folder, 'ca.pem');
  makeCertificate(folder);
  const tls = { ca: await readFile(ca, 'utf8') };
  let count = 0;

  async function start(lines: readonly string[], sentinel = false): Promise<RedisMember> {
    const data = join(folder, String((count += 1)));
    const port = await freePort();
    if (root === undefined) await mkdir(data, { recursive: true });
    else await makeDataDir(data, root, 'redis');
    const seen = root === undefined ? data : DATA_IN_ROOT;
    const file = join(data, 'redis.conf');
    await writeFile(file, [...commonLines(port, seen, sentinel), ...lines, ''].join('\n'));
    for (const pem of ['ca.pem', 'key.pem']) await copyFile(join(folder, pem), join(data, pem));
    // The server runs as another user, and Sentinel writes its file.
    await Promise.all([chmod(file, 0o666), chmod(data, 0o777)]);
    const server = ['redis-server', join(seen, 'redis.conf'), ...(sentinel ? ['--sentinel'] : [])];
    const command =
      root === undefined ? [program!, ...server.slice(1)] : inRoot(root, data, 'redis', server);
    const logFile = join(folder, `${count}.log`);
    const run = (): Promise<ServerProcess> =>
      startProcess({ command, logFile, wrapped: root !== undefined });
    let process = await run();
    const client = new Redis({
      host: '127.0.0.1',
      port,
      ...LOGIN,
      tls,
      retryStrategy: () => 100,
      maxRetriesPerRequest: null,
    });
    client.on('error', () => {});
    const member: RedisMember = {
      port,
      client,
      signal: (signal) => process.signal(signal),
      restart: async () => {
        await process.signal('SIGKILL');
        await process.end('SIGKILL');
        process = await run();
      },
    };
    started.push({ member, process: () => process });
    await eventually(
      `${logFile} to answer`,
      async () => (await answer(client.ping())) === 'PONG',
      READY_MS,
    );
    return member;
  }
  const stop = async (): Promise<void> => {
    for (const { member, process } of started) {
      member.client.disconnect();
      await process().signal('SIGKILL');
      await process().end('SIGKILL');
    }
    await rm(folder, { recursive: true, force: true });
  };
  return { start, stop, ca };
}

function commonLines(port: number, folder: string, sentinel: boolean): string[] {
  const common = [
    'bind 127.0.0.1',
    `dir ${folder}`,
    'port 0',
    `tls-port ${port}`,
    `tls-cert-file ${folder}/ca.pem`,
    `tls-key-file ${folder}/key.pem`,
    `tls-ca-cert-file ${folder}/ca.pem`,
    'tls-auth-clients no',
    'tls-replication yes',
    `user ${LOGIN.username} on >${LOGIN.password} ~* &* +@all`,
    'user default off',
  ];
  // Data in Redis may be lost, so nothing waits for a disk.
  const data = [
    'appendonly no',
    'save ""',
    'maxmemory-policy noeviction',
    'repl-diskless-sync-delay 0',
    `masteruser ${LOGIN.username}`,
    `masterauth ${LOGIN.password}`,
  ];
  return sentinel ? common : [...common, ...data];
}
