/** Redis clients whose commands end soon, for one server, Sentinel or Cluster. */
import { Cluster, Redis, type RedisOptions } from 'ioredis';
import type { Probe, Fault } from '../process/fault.ts';
import { authorityOf } from '../http/networks.ts';
import { Contact, type ContactAttempt } from '../process/contact-failure.ts';
import { defined } from '../process/defined.ts';
import { jittered } from '../process/deadline.ts';
import type { Logger } from '../process/log.ts';
import {
  failureOf,
  foundError,
  isElsewhere,
  isReplica,
  isVague,
  lacksScript,
} from '../process/server-words.ts';
import { onReplies, watchedSentinels } from './inside-ioredis.ts';
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
  const attempts = new Attempts(servers);
  const redis = connect(servers, use, attempts, redisTls);
  const place = {
    name: 'Redis',
    at: servers.hosts.map(authorityOf).join(', '),
    setting: 'REDIS_URL',
    certificate: 'REDIS_TLS_CERT_FILE',
    tls: servers.tls,
    speaks: 'Redis',
  };
  const contact = new Contact(place, log);
  let evicts: Fault[] = [];
  warnings?.push(contact.warnings, () => evicts);
  const heard = (info: Info): void => {
    evicts = evictionIn(info, place.at);
  };
  const failed: OnFailure = (thrown, reply) => {
    const { error, ...attempt } = attempts.of(thrown, reply?.node);
    contact.failed(error, { ...attempt, ...defined({ parts: reply?.parts }) });
  };
  if (redis instanceof Cluster) {
    redis.on('+node', (node: Redis) => watchReplies(node, { contact, failed, heard }, true));
    redis.on('node error', (error: unknown, node: string) => attempts.failed(node, error));
  } else watchReplies(redis, { contact, failed, heard }, false);
  let wasReady = false;
  // Without a listener the error would end the process.
  redis.on('error', (error) => failed(error));
  // A server that expects TLS closes a plain connection without an error.
  redis.on('reconnecting', () => {
    if (!wasReady && contact.warnings().length === 0) failed(foundError('ConnectionEnded'));
  });
  redis.on('ready', () => {
    wasReady = true;
    attempts.forget();
    contact.ok();
  });
  redis.on('end', () => contact.closed());
  return redis;
}

/** `reply` is of a server that answers: the node of a Cluster, and what it said of itself. */
type OnFailure = (
  error: unknown,
  reply?: { readonly node: string | undefined; readonly parts: ContactAttempt['parts'] },
) => void;

/** Which server of Sentinels or a Cluster was tried. */
class Attempts {
  readonly #servers: RedisServers;
  /** The primary that a Sentinel named last. */
  #primary: { readonly at: string; readonly sentinel: string } | undefined;
  /** The failures since the last success, by Sentinel or node. */
  readonly #failures = new Map<string, unknown>();

  constructor(servers: RedisServers) {
    this.#servers = servers;
  }

  readonly named = (sentinel: string, at: string): void => {
    this.#primary = { at, sentinel };
    this.forget();
  };

  readonly failed = (at: string, error: unknown): void => {
    this.#failures.set(at, error);
  };

  forget(): void {
    this.#failures.clear();
  }

  /** The error that says most, and where it was met; `node` is the server of a reply. */
  of(error: unknown, node?: string): ContactAttempt & { readonly error: unknown } {
    const { kind, options } = this.#servers;
    if (kind === 'single') return { error };
    const given = this.#servers.hosts.map(authorityOf);
    const all = node === undefined ? [...this.#failures] : [];
    const [first] = all.toSorted(([, one], [, other]) => vagueness(one) - vagueness(other));
    if (kind === 'cluster') {
      const at = node ?? first?.[0];
      if (at === undefined) return { error };
      const named = { namedBy: 'the Cluster', setting: 'what the nodes of the Cluster announce' };
      return { error: first?.[1] ?? error, at, ...(given.includes(at) ? {} : named) };
    }
    if (first === undefined) {
      if (this.#primary === undefined) return { error };
      const { at, sentinel } = this.#primary;
      return {
        error,
        name: `Redis primary ${options.name ?? ''}`,
        at,
        namedBy: `the Sentinel at ${sentinel}`,
        setting: 'what the Sentinels announce',
        login: 'user and password in REDIS_URL',
      };
    }
    const { code } = failureOf(first[1]);
    const alike = all.filter(([, one]) => failureOf(one).code === code);
    const named = alike.every(([at]) => given.includes(at)) ? {} : { namedBy: 'another Sentinel' };
    return {
      error: first[1],
      name: 'Redis Sentinel',
      at: alike.map(([at]) => at).join(', '),
      login: 'sentinel_username and sentinel_password in REDIS_URL',
      ...named,
    };
  }
}

const vagueness = (error: unknown): number => Number(isVague(failureOf(error)));

function watchReplies(
  redis: Redis,
  {
    contact,
    failed,
    heard,
  }: {
    readonly contact: Contact;
    readonly failed: OnFailure;
    readonly heard: (info: Info) => void;
  },
  isOfCluster: boolean,
): void {
  let refusedAtMs: number | undefined;
  let probe: NodeJS.Timeout | undefined;
  const ask = (): Promise<unknown> =>
    redis.set(PROBE_KEY, '', 'PX', QUIET_MS).catch(() => undefined);
  const { host = '', port = 0 } = redis.options;
  const node = isOfCluster ? authorityOf({ host, port }) : undefined;
  let info: Info = {};
  const tell = (error: Error): void => failed(error, { node, parts: partsOf(info) });
  // A server that refuses commands leaves the connection open, so the client emits no error.
  const refused = (error: Error): void => {
    if (error.name !== 'ReplyError' || lacksScript(error)) return;
    if (isOfCluster && isElsewhere(error)) return taken();
    refusedAtMs = performance.now();
    tell(info.redis_mode === 'sentinel' ? foundError('IsSentinel', 'redis_mode:sentinel') : error);
    // Only this ends the warning if no other command is sent.
    probe ??= setInterval(() => void ask(), QUIET_MS).unref();
  };
  const taken = (command?: string, reply?: unknown): void => {
    if (command === 'info') {
      info = infoOf(reply);
      heard(info);
      // The client waits, and no command is answered.
      if (info.loading === '1') tell(foundError('Loading', 'LOADING'));
    }
    if (refusedAtMs === undefined || performance.now() - refusedAtMs < QUIET_MS) return;
    refusedAtMs = undefined;
    clearInterval(probe);
    probe = undefined;
    contact.ok();
  };
  redis.on('end', () => clearInterval(probe));
  onReplies(redis, taken, refused);
}

/** What Redis says of itself. */
type Info = Readonly<
  Partial<
    Record<
      | 'redis_version'
      | 'redis_mode'
      | 'loading'
      | 'role'
      | 'master_host'
      | 'master_port'
      | 'maxmemory'
      | 'maxmemory_policy',
      string
    >
  >
>;

const infoOf = (reply: unknown): Info =>
  Object.fromEntries(
    [...String(reply).matchAll(/^(\w+):(.*?)\r?$/gm)].map(([, name, value]) => [name, value]),
  ) as Info;

/** Warns of a Redis that removes keys: it works until its memory is full. */
function evictionIn({ maxmemory = '0', maxmemory_policy: policy }: Info, at: string): Fault[] {
  if (maxmemory === '0' || policy === undefined || policy === 'noeviction') return [];
  const words = `Redis at ${at}: it removes keys once its memory is full (maxmemory-policy ${policy}), such as jobs and limits; set noeviction`;
  return [{ code: 'evicts', of: 'Redis', words }];
}

function partsOf(info: Info): ContactAttempt['parts'] {
  const { redis_version: version, role, master_host: host = '', master_port: port } = info;
  const primary = authorityOf({ host, port: Number(port) });
  return {
    version: version === undefined ? '' : `; it is Redis ${version}`,
    primary: role === 'slave' ? ` of ${primary}` : '',
  };
}

function connect(
  { kind, tls: hasTls, hosts, options: given }: RedisServers,
  use: RedisUse,
  attempts: Attempts,
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
        Connector: watchedSentinels(attempts),
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
