/** Redis clients whose every command ends soon: one server, Sentinel or Cluster. */
import { Cluster, Redis, type ClusterOptions, type RedisOptions } from 'ioredis';
import { Contact } from './contact.ts';
import type { Logger } from './log.ts';
import { parseRedisUrl, type RedisAddress } from './redis-url.ts';

/**
 * Reconnects quickly and without end: 50 ms, 100 ms, … 500 ms, jittered so that pods do not come
 * back in step.
 */
const RETRY_STEP_MS = 50;
const RETRY_CAP_MS = 500;
const CONNECT_TIMEOUT_MS = 1_000;
/**
 * A connection that owes an answer for this long is closed: the kernel would take a quarter of an
 * hour.
 */
const SILENT_MS = 2_000;
/**
 * A Cluster's slots are read anew this often, each time on a new connection; errors and
 * redirections lead to it at once.
 */
const SLOTS_REFRESH_MS = 5_000;
/**
 * A command follows at most this many redirections, as while a slot moves; beyond it the command
 * fails.
 */
const MAX_REDIRECTIONS = 4;

/**
 * A command fails at once while Redis is away, and gives up on an answer after `commandTimeoutMs`,
 * in a Cluster after a second; there, with `autoPipeline`, the commands of one turn of the event
 * loop share a round trip for each server.
 */
export interface RedisUse {
  readonly commandTimeoutMs: number;
  readonly autoPipeline?: true;
}

export type RedisClient = Redis | Cluster;

/** `url` as `parseRedisUrl` takes it. Connects by itself, whenever it has to. */
export function createRedis(url: string, use: RedisUse, log: Logger): RedisClient {
  const address = parseRedisUrl(url);
  const redis = connect(address, use);
  const where = address.hosts.map(({ host, port }) => `${host}:${port}`).join(', ');
  const contact = new Contact({ name: 'Redis', at: where, setting: 'REDIS_URL' }, log);
  contacts.set(redis, contact);
  const onError = (error: unknown): void => {
    // The connection stays, and only the commands fail.
    if ((error as Error).message.startsWith('NOPERM')) contact.failed(error);
  };
  if (redis instanceof Cluster)
    redis.on('+node', (node: Redis) => handleOwnCommands(node, onError));
  else handleOwnCommands(redis, onError);
  let wasReady = false;
  // Without a listener an outage would be an uncaught exception.
  redis.on('error', (error) => contact.failed(error));
  // A server that wants TLS hangs up on a client without it, which is no error to the client.
  redis.on('reconnecting', () => {
    if (!wasReady && contact.warnings().length === 0) contact.failed(new Error('closed'));
  });
  redis.on('ready', () => {
    wasReady = true;
    contact.ok();
  });
  return redis;
}

const contacts = new WeakMap<RedisClient, Contact>();

/** Why Redis cannot be used at present; empty when it can. */
export function redisWarnings(redis: RedisClient): readonly string[] {
  return contacts.get(redis)?.warnings() ?? [];
}

/**
 * After a reconnect the client selects by itself, and handles no rejection of these commands: each
 * would end the process. What we send is handled where we send it.
 */
function handleOwnCommands(redis: Redis, onError: (error: unknown) => void): void {
  const sendCommand = redis.sendCommand.bind(redis);
  redis.sendCommand = (command, stream) => {
    command.promise.catch(onError);
    return sendCommand(command, stream);
  };
}

/** Whether the client would send a command at once. */
export function isReady(redis: RedisClient): boolean {
  return redis.status === 'ready';
}

type Options = ReturnType<typeof connectionOptions> & ReturnType<typeof useOptions>;

function connect(address: RedisAddress, use: RedisUse): RedisClient {
  const options: Options = { ...connectionOptions(address), ...useOptions(use) };
  switch (address.kind) {
    case 'single':
      return new Redis({ ...options, ...address.hosts[0], db: address.db });
    case 'sentinel':
      return new Redis({
        ...options,
        ...(address.tls ? { sentinelTLS: {}, enableTLSForSentinelMode: true } : {}),
        sentinels: [...address.hosts],
        name: address.name,
        db: address.db,
        ...(address.sentinelLogin.username === undefined
          ? {}
          : { sentinelUsername: address.sentinelLogin.username }),
        ...(address.sentinelLogin.password === undefined
          ? {}
          : { sentinelPassword: address.sentinelLogin.password }),
        sentinelCommandTimeout: CONNECT_TIMEOUT_MS,
      });
    case 'cluster':
      return new Cluster([...address.hosts], clusterOptions(options, use));
  }
}

function connectionOptions({ tls, username, password }: RedisAddress) {
  // A primary that became a replica may keep its connections: it refuses writes until the client
  // looks for the new one.
  let demoted = false;
  return {
    ...(tls ? { tls: {} } : {}),
    ...(username === undefined ? {} : { username }),
    ...(password === undefined ? {} : { password }),
    connectTimeout: CONNECT_TIMEOUT_MS,
    socketTimeout: SILENT_MS,
    reconnectOnError: (error: Error) => (demoted = error.message.includes('READONLY')),
    retryStrategy: (times: number) => {
      const waitMs = demoted ? RETRY_CAP_MS : Math.min(times * RETRY_STEP_MS, RETRY_CAP_MS);
      demoted = false;
      return waitMs * (0.8 + 0.4 * Math.random());
    },
  } satisfies RedisOptions;
}

function useOptions(use: RedisUse) {
  return {
    enableOfflineQueue: false,
    commandTimeout: use.commandTimeoutMs,
    maxRetriesPerRequest: 0,
  } satisfies RedisOptions;
}

function clusterOptions(options: Options, use: RedisUse) {
  const { retryStrategy, enableOfflineQueue, ...redisOptions } = options;
  return {
    // The pool connects to a node anew when a slot needs it, and a command's time includes that:
    // the caller bounds it.
    redisOptions: { ...redisOptions, commandTimeout: CONNECT_TIMEOUT_MS },
    clusterRetryStrategy: retryStrategy,
    enableOfflineQueue,
    enableAutoPipelining: use.autoPipeline === true,
    maxRedirections: MAX_REDIRECTIONS,
    slotsRefreshInterval: SLOTS_REFRESH_MS,
    slotsRefreshTimeout: CONNECT_TIMEOUT_MS,
    retryDelayOnFailover: 0,
    retryDelayOnClusterDown: 0,
    // Certificates are for names: a name is not looked up before the connection is made.
    dnsLookup: (address: string, found: (error: null, address: string) => void) =>
      found(null, address),
  } satisfies ClusterOptions;
}
