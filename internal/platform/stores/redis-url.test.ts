import { expect, test } from '@jest/globals';
import { parseRedisUrl } from './redis-url.ts';

const host = (name: string, port: number) => ({ host: name, port });

test.each<[string, object, object]>([
  ['redis://cache', { kind: 'single', tls: false, hosts: [host('cache', 6379)] }, {}],
  [
    'rediss://me:p%40ss%3A@cache.example:6380/3',
    { kind: 'single', tls: true, hosts: [host('cache.example', 6380)] },
    { db: 3, username: 'me', password: 'p@ss:' },
  ],
  [
    'redis://:secret@[::1]:7',
    { kind: 'single', tls: false, hosts: [host('::1', 7)] },
    { password: 'secret' },
  ],
  [
    'rediss+sentinel://me:pw@a:1?name=m&sentinel_username=s&sentinel_password=t%26u',
    { kind: 'sentinel', tls: true, hosts: [host('a', 1)] },
    {
      name: 'm',
      username: 'me',
      password: 'pw',
      sentinelUsername: 's',
      sentinelPassword: 't&u',
    },
  ],
  [
    'rediss+cluster://a:1,[::2]:2',
    { kind: 'cluster', tls: true, hosts: [host('a', 1), host('::2', 2)] },
    {},
  ],
])('%s', (url, address, options) => {
  expect(parseRedisUrl(url)).toEqual({ ...address, options: { db: 0, ...options } });
});

test.each([
  ['', /must look like redis:/],
  ['redis://me:hid/den@cache', /must be percent-encoded: \/ as %2F/],
  ['redis://a:1,b:2', /names several hosts/],
  ['redis://cache/first', /number of a database/],
  ['redis://cache?family=6', /a parameter that single does not know/],
  ['redis://%ff:hidden@cache', /percent-encoded/],
  ['redis+sentinel://a:1', /needs \?name=/],
  ['redis+cluster://a:70000', /a host that is not host:port/],
  ['redis+cluster://a:1/2', /a Redis Cluster has only 0/],
])('%s is refused, and the message holds no secret', (url, words) => {
  expect(() => parseRedisUrl(url)).toThrow(words);
  expect(() => parseRedisUrl(url)).not.toThrow(/hid/);
});
