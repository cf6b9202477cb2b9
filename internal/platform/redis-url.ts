/** Parses REDIS_URL: one server, Sentinel or Cluster. Messages contain no part of it. */
import { defined } from './defined.ts';

export interface HostAndPort {
  readonly host: string;
  readonly port: number;
}

interface Login {
  readonly username?: string;
  readonly password?: string;
}

interface Shared extends Login {
  readonly tls: boolean;
  /** Never empty. */
  readonly hosts: readonly HostAndPort[];
}

export type RedisAddress =
  | (Shared & { readonly kind: 'single'; readonly db: number })
  | (Shared & {
      readonly kind: 'sentinel';
      /** The Sentinels' name for the primary. */
      readonly name: string;
      readonly db: number;
      readonly sentinelLogin: Login;
    })
  | (Shared & { readonly kind: 'cluster' });

const FORMS =
  'redis://[user:password@]host[:port][/db], redis+sentinel://[user:password@]host:port,host:port[/db]?name=PRIMARY or ' +
  'redis+cluster://[user:password@]host:port,host:port, with rediss for TLS';
const SHAPE =
  /^rediss?(?:\+(sentinel|cluster))?:\/\/(?:([^@/?#]*)@)?([^@/?#]+)(?:\/([^?#]*))?(?:\?([^#]*))?$/;
const HOST = /^(\[[0-9a-f:.]+\]|[^\s:[\]]+)(?::(\d{1,5}))?$/i;
const PORTS = { single: 6379, sentinel: 26_379, cluster: 6379 } as const;
const PARAMETERS = {
  single: [],
  sentinel: ['name', 'sentinel_username', 'sentinel_password'],
  cluster: [],
} as const;
const MAX_PORT = 65_535;

export const BARE_LOGIN =
  'has a character in its user or password that must be percent-encoded: / as %2F, ? as %3F, # as %23, @ as %40';
const LOGIN_WITH_END =
  /^[a-z+]+:\/\/(?![^@]*[?&]\w+=)[^@]*[/?#][^@]*@|^[a-z+]+:\/\/[^/?#]*@[^/?#]*@/;

/** Whether the URL seems to end, or its host to begin, within the password. */
export function hasBareLogin(url: string): boolean {
  return LOGIN_WITH_END.test(url);
}

export function parseRedisUrl(url: string): RedisAddress {
  try {
    return parse(url);
  } catch (error) {
    throw hasBareLogin(url) ? new RedisUrlError(BARE_LOGIN) : error;
  }
}

function parse(url: string): RedisAddress {
  const [, scheme = 'single', login, hostList = '', path = '', query = ''] = SHAPE.exec(url) ?? [];
  if (hostList === '') throw new RedisUrlError(`must look like ${FORMS}`);
  const kind = scheme as RedisAddress['kind'];
  const hosts = hostList.split(',').map((host) => hostAndPort(host, PORTS[kind]));
  if (kind === 'single' && hosts.length > 1) {
    throw new RedisUrlError(
      'names several hosts: say which they are by redis+sentinel:// or redis+cluster://',
    );
  }
  const parameters = new URLSearchParams(query);
  const known: readonly string[] = PARAMETERS[kind];
  for (const name of parameters.keys()) {
    if (!known.includes(name))
      throw new RedisUrlError(`has a parameter that ${kind} does not know`);
  }
  const shared = { tls: url.startsWith('rediss'), hosts, ...loginOf(login) };
  if (!/^\d{0,5}$/.test(path))
    throw new RedisUrlError('must end in the number of a database, if in anything');
  const db = Number(path);
  if (kind === 'cluster') {
    if (db !== 0) throw new RedisUrlError('names a database: a Redis Cluster has only 0');
    return { ...shared, kind };
  }
  if (kind === 'single') return { ...shared, kind, db };
  const name = parameters.get('name') ?? '';
  if (name === '') throw new RedisUrlError('needs ?name=, what the Sentinels call their primary');
  const sentinelLogin = defined({
    username: parameters.get('sentinel_username') ?? undefined,
    password: parameters.get('sentinel_password') ?? undefined,
  });
  return { ...shared, kind, db, name, sentinelLogin };
}

function hostAndPort(text: string, standardPort: number): HostAndPort {
  const [, host, port] = HOST.exec(text) ?? [];
  const number = port === undefined ? standardPort : Number(port);
  if (host === undefined || number < 1 || number > MAX_PORT) {
    throw new RedisUrlError('has a host that is not host:port, or is empty');
  }
  return { host: host.replace(/^\[|\]$/g, ''), port: number };
}

function loginOf(text: string | undefined): Login {
  if (text === undefined || text === '') return {};
  const [user, ...rest] = text.split(':');
  try {
    return defined({
      username: decodeURIComponent(user ?? '') || undefined,
      password: decodeURIComponent(rest.join(':')) || undefined,
    });
  } catch {
    throw new RedisUrlError('has a user or password that is not percent-encoded');
  }
}

export class RedisUrlError extends Error {
  override readonly name = 'RedisUrlError';
}
