/** Redis clients whose commands end soon, for one server, Sentinel or Cluster. */
import { Cluster, Redis, type RedisOptions } from 'ioredis';
import type { Probe } from '../process/probe.ts';
import { Contact } from '../process/contact-failure.ts';
import { jittered } from '../process/deadline.ts';
import type { Logger } from '../process/log.ts';
import {
  ConnectionEndedError,
  isElsewhere,
  isReplica,
  lacksScript,
} from '../process/server-words.ts';
import { onReplies } from './inside-ioredis.ts';
import { parseRedisUrl, type RedisServers } from './redis-url.ts';

/** Waits 50 ms, 100 ms, … 500 ms, with jitter. */
const RETRY_STEP_MS = 50;
const RETRY_CAP_MS = 500;
const CONNECT_TIMEOUT_MS = 1_000;
/** Closes a silent connection; the kernel would after 15 minutes. */
const SILENT_MS = 2_000;
/** Each refresh opens a connection; errors and redirections refresh at once. */
const SLOTS_REFRESH_MS = 5_000;
const MAX_REDIRECTIONS = 4;
/** This long without a refusal, Redis counts as accepting all commands. */
const QUIET_MS = 5_000;
const PROBE_KEY = 'partner-ingest:write-probe';

/**
 * A command fails at once while Redis is away, else after `commandTimeoutMs`, at least 1 s in a
 * Cluster. With `autoPipeline`, a Cluster's commands of one turn of the event loop share a round
 * trip.
 */
interface RedisUse {
  readonly commandTimeoutMs: number;
  readonly autoPipeline?: true;
}

export type RedisClient = Redis | Cluster;

/** All in PEM. `ca` replaces the public authorities. */
export interface RedisTls {
  readonly cert?: string;
  readonly key?: string;
  readonly ca?: string;
}

/** Adds to `warnings` why Redis cannot be used. */
export function createRedis(
  url: string,
  use: RedisUse,
  tools: { readonly log: Logger; readonly warnings?: Probe[]; readonly redisTls?: RedisTls },
): RedisClient {
  const { log, warnings, redisTls } = tools;
  const servers = parseRedisUrl(url);
  const redis = connect(servers, use, redisTls);
  const place = {
    name: 'Redis',
    at: servers.hosts.map(({ host, port }) => `${host}:${port}`).join(', '),
    setting: 'REDIS_URL',
    certificate: 'REDIS_TLS_CERT_FILE',
    tls: servers.tls,
  };
  const contact = new Contact(place, log);
  warnings?.push(contact.warnings);
  if (redis instanceof Cluster)
    redis.on('+node', (node: Redis) => watchReplies(node, contact, true));
  else watchReplies(redis, contact, false);
  let wasReady = false;
  // Without a listener the error would end the process.
  redis.on('error', (error) => contact.failed(error));
  // A server that expects TLS closes a plain connection without an error.
  redis.on('reconnecting', () => {
    if (!wasReady && contact.warnings().length === 0) contact.failed(new ConnectionEndedError());
  });
  redis.on('ready', () => {
    wasReady = true;
    contact.ok();
  });
  redis.on('end', () => contact.closed());
  return redis;
}

function watchReplies(redis: Redis, contact: Contact, isOfCluster: boolean): void {
  let refusedAtMs: number | undefined;
  let probe: NodeJS.Timeout | undefined;
  const ask = (): Promise<unknown> =>
    redis.set(PROBE_KEY, '', 'PX', QUIET_MS).catch(() => undefined);
  // A server that refuses commands leaves the connection open, so the client emits no error.
  const refused = (error: Error): void => {
    if (error.name !== 'ReplyError' || lacksScript(error)) return;
    if (isOfCluster && isElsewhere(error)) return taken();
    refusedAtMs = performance.now();
    contact.failed(error);
    // Only this ends the warning if no other command is sent.
    probe ??= setInterval(() => void ask(), QUIET_MS).unref();
  };
  const taken = (): void => {
    if (refusedAtMs === undefined || performance.now() - refusedAtMs < QUIET_MS) return;
    refusedAtMs = undefined;
    clearInterval(probe);
    probe = undefined;
    contact.ok();
  };
  redis.on('end', () => clearInterval(probe));
  onReplies(redis, taken, refused);
}

function connect(
  { kind, tls: hasTls, hosts, options: given }: RedisServers,
  use: RedisUse,
  tls: RedisTls = {},
): RedisClient {
  // A demoted primary may keep its connections; only a reconnect finds the new one.
  let demoted = false;
  const retryStrategy = (times: number): number => {
    const waitMs = demoted ? RETRY_CAP_MS : Math.min(times * RETRY_STEP_MS, RETRY_CAP_MS);
    demoted = false;
    return jittered(waitMs);
  };
  const options = {
    ...given,
    ...(hasTls ? { tls } : {}),
    connectTimeout: CONNECT_TIMEOUT_MS,
    socketTimeout: SILENT_MS,
    reconnectOnError: (error: Error) => (demoted = isReplica(error)),
    commandTimeout: use.commandTimeoutMs,
    maxRetriesPerRequest: 0,
  } satisfies RedisOptions;
  switch (kind) {
    case 'single':
      return new Redis({ ...options, ...hosts[0], retryStrategy, enableOfflineQueue: false });
    case 'sentinel':
      return new Redis({
        ...options,
        ...(hasTls ? { sentinelTLS: tls, enableTLSForSentinelMode: true } : {}),
        sentinels: [...hosts],
        sentinelCommandTimeout: CONNECT_TIMEOUT_MS,
        retryStrategy,
        enableOfflineQueue: false,
      });
    case 'cluster':
      return new Cluster([...hosts], {
        // A command may first have to connect to its node; callers bound the total.
        redisOptions: {
          ...options,
          commandTimeout: Math.max(use.commandTimeoutMs, CONNECT_TIMEOUT_MS),
        },
        clusterRetryStrategy: retryStrategy,
        enableOfflineQueue: false,
        enableAutoPipelining: use.autoPipeline === true,
        maxRedirections: MAX_REDIRECTIONS,
        slotsRefreshInterval: SLOTS_REFRESH_MS,
        slotsRefreshTimeout: CONNECT_TIMEOUT_MS,
        retryDelayOnFailover: 0,
        retryDelayOnClusterDown: 0,
        // Certificates are checked against names, so names stay unresolved.
        dnsLookup: (address, found) => found(null, address),
      });
  }
}
