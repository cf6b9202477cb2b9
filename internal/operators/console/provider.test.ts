import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { createServer, type Server } from 'node:http';
import { listen } from '../../../test/support/listen.ts';
import { createLogger } from '../../platform/process/log.ts';
import { providerOf } from './provider.ts';

let [asked, version, isAway] = [0, 1, false];
let issuer = '';
let server: Server;
beforeAll(async () => {
  server = createServer((_, answer) => {
    asked += 1;
    answer.writeHead(isAway ? 503 : 200, { 'content-type': 'application/json' });
    answer.end(JSON.stringify({ issuer, token_endpoint: `${issuer}/v${version}` }));
  });
  issuer = `http://127.0.0.1:${await listen(server)}`;
});
afterAll(() => void server.close());

test('discovery is renewed hourly and after a doubt, at most once a second, and kept while it fails', async () => {
  let nowMs = 0;
  const provider = providerOf(
    {
      issuer,
      clientId: 'console',
      clientSecret: 'any',
      rolesClaim: 'roles',
      nameClaim: 'email',
      roles: { viewer: 'viewer', support: 'support' },
      proxies: { http: undefined, https: undefined, no: undefined },
    },
    { log: createLogger('test', 'silent'), elapsedMs: () => nowMs },
  );
  /** The version that it knows, how often it asked for it, for many at once. */
  const known = async (): Promise<readonly [string | undefined, number]> => {
    asked = 0;
    const all = await Promise.all(Array.from({ length: 10 }, () => provider.configuration()));
    const [endpoint, ...others] = new Set(
      all.map((one) => one.serverMetadata().token_endpoint?.split('/').at(-1)),
    );
    expect(others).toEqual([]);
    return [endpoint, asked];
  };
  isAway = true;
  await expect(known()).rejects.toThrow('answers 503');
  await expect(known()).rejects.toThrow('answers 503');
  expect(asked).toBe(0);
  [isAway, nowMs] = [false, 1_000];
  expect(await known()).toEqual(['v1', 1]);
  version = 2;
  expect(await known()).toEqual(['v1', 0]);
  nowMs += 3_599_999;
  expect(await known()).toEqual(['v1', 0]);
  nowMs += 1;
  expect(await known()).toEqual(['v2', 1]);

  version = 3;
  provider.doubt();
  expect(await known()).toEqual(['v2', 0]);
  nowMs += 1_000;
  expect(await known()).toEqual(['v3', 1]);

  version = 4;
  nowMs += 3_600_000;
  isAway = true;
  expect(await known()).toEqual(['v3', 1]);
  expect(await known()).toEqual(['v3', 0]);
  [isAway, nowMs] = [false, nowMs + 1_000];
  expect(await known()).toEqual(['v4', 1]);
});
