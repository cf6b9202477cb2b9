/** Parses REDIS_URL: one server, Sentinel or Cluster. Messages contain no part of it. */
import { defined } from '../process/defined.ts';
import { isLoopback } from '../http/networks.ts';

export interface HostAndPort {
  readonly host: string;
  readonly port: number;
}

export interface RedisServers {
  readonly kind: 'single' | 'sentinel' | 'cluster';
  readonly tls: boolean;
  /** Never empty. */
  readonly hosts: readonly HostAndPort[];
  /** Options of ioredis. */
  readonly options: {
    readonly db: number;
    readonly username?: string;
    readonly password?: string;
    /** The Sentinels' name for the primary. */
    readonly name?: string;
    readonly sentinelUsername?: string;
    readonly sentinelPassword?: string;
  };
}

const FORMS =
  'redis://[user:password@]host[:port][/db], redis+sentinel://[user:password@]host:port,host:port[/db]?name=PRIMARY or ' +
  'redis+cluster://[user:password@]host:port,host:port, with rediss for TLS';
const SHAPE =
  /^rediss?(?:\+(sentinel|cluster))?:\/\/(?:([^@/?#]*)@)?([^@/?#]+)(?:\/([^?#]*))?(?:\?([^#]*))?$/;
const HOST = /^(\[[0-9a-f:.]+\]|[^\s:[\]]+)(?::(\d{1,5}))?$/i;
const SENTINEL_PARAMETERS = ['name', 'sentinel_username', 'sentinel_password'];
const MAX_PORT = 65_535;

export const BARE_LOGIN =
  'has a character in its user or password that must be percent-encoded: / as %2F, ? as %3F, # as %23, @ as %40';
const LOGIN_WITH_END =
  /^[a-z+]+:\/\/(?![^@]*[?&]\w+=)[^@]*[/?#][^@]*@|^[a-z+]+:\/\/[^/?#]*@[^/?#]*@/;

/** Whether an unencoded character ends the URL or begins its host within the password. */
export function hasBareLogin(url: string): boolean {
  return LOGIN_WITH_END.test(url);
}

/** Throws with the fault. */
export function parseRedisUrl(url: string): RedisServers {
  if (hasBareLogin(url)) throw new Error(BARE_LOGIN);
  const [, scheme = 'single', login = '', hostList, path = '', query = ''] = SHAPE.exec(url) ?? [];
  if (hostList === undefined) throw new Error(`must look like ${FORMS}`);
  const kind = scheme as RedisServers['kind'];
  const hosts = hostList.split(',').map((host) => hostAndPort(host, kind));
  if (kind === 'single' && hosts.length > 1) {
    throw new Error(
      'names several hosts: say which they are by redis+sentinel:// or redis+cluster://',
    );
  }
  const parameters = new URLSearchParams(query);
  if (
    [...parameters.keys()].some((one) => kind !== 'sentinel' || !SENTINEL_PARAMETERS.includes(one))
  )
    throw new Error(`has a parameter that ${kind} does not know`);
  const [username, password] = loginOf(login);
  if (!/^\d{0,5}$/.test(path))
    throw new Error('must end in the number of a database, if in anything');
  const db = Number(path);
  if (kind === 'cluster' && db !== 0)
    throw new Error('names a database: a Redis Cluster has only 0');
  const [name, sentinelUsername, sentinelPassword] = SENTINEL_PARAMETERS.map(
    (parameter) => parameters.get(parameter) || undefined,
  );
  if (kind === 'sentinel' && name === undefined)
    throw new Error('needs ?name=, what the Sentinels call their primary');
  const given = defined({ username, password, name, sentinelUsername, sentinelPassword });
  return { kind, tls: url.startsWith('rediss'), hosts, options: { db, ...given } };
}

function hostAndPort(text: string, kind: RedisServers['kind']): HostAndPort {
  const [, host, port = kind === 'sentinel' ? 26_379 : 6_379] = HOST.exec(text) ?? [];
  if (host === undefined || Number(port) < 1 || Number(port) > MAX_PORT)
    throw new Error('has a host that is not host:port, or is empty');
  return { host: host.replace(/^\[|\]$/g, ''), port: Number(port) };
}

function loginOf(text: string): (string | undefined)[] {
  const [, user = '', password = ''] = /^([^:]*):?(.*)$/.exec(text) ?? [];
  try {
    return [user, password].map((part) => decodeURIComponent(part) || undefined);
  } catch {
    throw new Error('has a user or password that is not percent-encoded');
  }
}

/** Whether others could read or change the traffic. A `rediss` URL verifies the certificate. */
export function redisExposed(url: string): boolean {
  const { tls, hosts } = parseRedisUrl(url);
  return !tls && !hosts.every(({ host }) => isLoopback(host));
}
