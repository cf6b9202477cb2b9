/** The file that partners run first (docs/certify.mjs), against the service and a changing proxy. */
import { createServer, request as requestTo, type Server } from 'node:http';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { testEndings } from '../../internal/application/test-endings.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { MODE_ANNOTATION } from '../../internal/partner/key-terms.ts';
import { endOf } from '../../tools/program.ts';
import { ROOT } from '../../tools/root.ts';
import { listen } from '../support/listen.ts';
import { worldOf } from '../support/world.ts';

const key = newApiKey({ test: true });
const annotations = { [MODE_ANNOTATION]: 'test' };
const { world, ingest } = await worldOf(['ingest', 'processor'], {
  partners: [{ partner: 'demo', name: 'tests', keys: [key], annotations }],
});
let proxy: Server;
let proxyUrl: string;

/** Strips the headers of requests and answers that a careless proxy strips. */
beforeAll(async () => {
  proxy = createServer((request, response) => {
    const { 'idempotency-key': _key, prefer: _prefer, ...headers } = request.headers;
    const { method = '', url = '' } = request;
    const on = requestTo(ingest.url + url, { method, headers }, (answer) => {
      const { 'retry-after': _after, ...kept } = answer.headers;
      response.writeHead(answer.statusCode!, kept);
      answer.pipe(response);
    });
    on.on('error', () => response.destroy());
    request.pipe(on);
  });
  proxyUrl = `http://127.0.0.1:${await listen(proxy)}`;
});
afterAll(() => {
  proxy.closeAllConnections();
  proxy.close();
});

async function certify(url: string) {
  const { redis } = world.stores;
  for (const counted of await redis.keys('*:limit:*test:*')) await redis.del(counted);
  const env = { BASE_URL: `${url}/api/v1`, API_KEY: key, WAIT_SECONDS: '5' };
  const { code, out } = await endOf(process.execPath, [`${ROOT}docs/certify.mjs`], { env });
  return { code, rows: out.trim().split('\n') };
}

test('every ending is as promised', async () => {
  const { code, rows } = await certify(ingest.url);
  expect(rows.filter((row) => !row.endsWith('  ok'))).toEqual([]);
  expect(rows.map((row) => row.slice(0, 9)).toSorted()).toEqual([...testEndings.keys()].toSorted());
  expect(code).toBe(0);
});

test('what a proxy changes is named', async () => {
  const { code, rows } = await certify(proxyUrl);
  const rowOf = (ein: string) => rows.find((row) => row.startsWith(ein));
  expect(rowOf('000000000')).toContain('preference-applied: null');
  expect(rowOf('000000007')).toContain('the list does not find its key');
  expect(rowOf('000000429')).toContain('retry-after: null');
  expect(code).toBe(1);
});
