/** An Ingress and an HTTPRoute of the chart, with TLS, through a real ingress controller. */
import { afterAll, beforeAll, expect } from '@jest/globals';
import { connect } from 'node:http2';
import { readFileSync, writeFileSync } from 'node:fs';
import { Agent, request } from 'node:https';
import { join } from 'node:path';
import { testEndings } from '../../internal/application/sandbox-endings.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { MODE_ANNOTATION } from '../../internal/partner/key-terms.ts';
import { SUBMISSIONS } from '../../internal/submission/submission.ts';
import { endOf } from '../../tools/program.ts';
import { ROOT } from '../../tools/root.ts';
import { INGEST_PATH, send } from '../support/http.ts';
import { requestIdOf } from '../support/world.ts';
import { FOLDER } from './cluster.ts';
import { connectionTo, GATEWAY_HOST, INGRESS_HOST, type Ingress } from './ingress.ts';
import { chartArgs, valuesFor } from './release.ts';
import { openWorld, step, type World } from './world.ts';

const DEMO_KEY = 'pik_evaluation_only_not_for_production';
const MOST_BYTES = 65_000;
/** Traefik keeps an early answer until the body ends, so `early` is not among them. */
const ROWS = [...testEndings.keys(), 'largest', 'idle'];
const bodyOf = (bytes: number): string => JSON.stringify({ pad: 'x'.repeat(bytes - 10) });

let world: World;
let ingress: Ingress;
beforeAll(async () => {
  world = await openWorld();
  // From here one machine sends the requests of many partners.
  await world.kubectl.helmAndWait(
    ['upgrade', world.release.name, ...chartArgs(world.tools)],
    [valuesFor(world.images, world.images.current)],
  );
  await world.settled();
  if (world.ingress === undefined) throw new Error('the cluster has no ingress controller');
  ingress = world.ingress;
}, 200_000);
afterAll(() => world.close());

step('the longest body is accepted, and ingest itself refuses a longer one', async () => {
  expect(Buffer.byteLength(bodyOf(MOST_BYTES))).toBe(MOST_BYTES);
  for (const url of world.urls) {
    const statusOf = async (bytes: number) =>
      (await world.post(DEMO_KEY, bodyOf(bytes), url)).status;
    expect([url, await statusOf(MOST_BYTES)]).toEqual([url, 202]);
    expect([url, await statusOf(MOST_BYTES + 1)]).toEqual([url, 400]);
    const { json } = await world.post(DEMO_KEY, bodyOf(5_000_000), url);
    expect(json).toMatchObject({ error: 'Request body must not exceed 65000 bytes' });
  }
});

step('an answer that comes before the end of the body reaches the partner', async () => {
  const agent = new Agent(connectionTo(ingress));
  for (const url of world.urls) {
    const status = await new Promise<number | undefined>((resolve, reject) => {
      const outgoing = request(
        new URL(INGEST_PATH, url),
        { method: 'POST', agent, headers: { 'content-length': '60000' } },
        (incoming) => {
          resolve(incoming.statusCode);
          outgoing.destroy();
        },
      );
      outgoing.on('error', reject);
      outgoing.write('{"half":');
    });
    expect([url, status]).toEqual([url, 401]);
  }
  agent.destroy();
});

step('ingest answers nobody over plain HTTP', async () => {
  for (const host of [INGRESS_HOST, GATEWAY_HOST]) {
    const { status } = await send(`http://${ingress.address}`, {
      key: DEMO_KEY,
      body: '{}',
      headers: { host },
    });
    expect([host, status]).toEqual([host, 404]);
  }
});

step('the address of a partner is the one that the ingress controller saw', async () => {
  const claimed = '203.0.113.9';
  for (const url of world.urls) {
    const answer = await world.post(DEMO_KEY, '{}', url, { 'x-forwarded-for': claimed });
    const record = await world.withDb((db) =>
      db.collection<{ _id: string; remoteIp?: string }>(SUBMISSIONS).findOne({
        _id: requestIdOf(answer),
      }),
    );
    const controllers = await world.kubectl.run(
      'get pods --all-namespaces --selector=app=traefik --output=jsonpath={.items[*].status.podIP}',
    );
    expect(record?.remoteIp).toMatch(/^\d+\.\d+\.\d+\.\d+$/);
    expect([claimed, ...controllers.split(' ')]).not.toContain(record?.remoteIp);
  }
  expect(await world.metric('ingest', 'partner_ingest_untrusted_forwarded_for_total')).toBe(0);
});

step('partners may speak HTTP/2 to the controller', async () => {
  for (const url of world.urls) {
    const { hostname } = new URL(url);
    const ca = readFileSync(ingress.caFile);
    const session = connect(`https://${ingress.address}`, { ca, servername: hostname });
    const status = await new Promise((resolve, reject) => {
      session.on('error', reject);
      const stream = session.request({
        ':method': 'POST',
        ':path': INGEST_PATH,
        ':authority': hostname,
        authorization: `Bearer ${DEMO_KEY}`,
      });
      stream.on('response', (headers) => resolve(headers[':status']));
      stream.on('error', reject);
      stream.end('{}');
    });
    expect([url, status]).toEqual([url, 202]);
    session.destroy();
  }
});

step('every ending of a test key comes through the controller as promised', async () => {
  const key = newApiKey({ test: true });
  await world.applyPartner('certify', [key], 'active', { [MODE_ANNOTATION]: 'test' });
  await world.answers(key, 202);
  const resolver = join(FOLDER, 'resolver.mjs');
  const found = `options.all ? done(null, [{ address, family: 4 }]) : done(null, address, 4)`;
  writeFileSync(
    resolver,
    `import dns from 'node:dns';
const address = '${ingress.address}';
dns.lookup = (_name, options, done) => ${found};
`,
  );
  const env = {
    API_KEY: key,
    NODE_EXTRA_CA_CERTS: ingress.caFile,
    NODE_OPTIONS: `--import=${resolver}`,
  };
  const runs = world.urls.map((url) =>
    endOf(process.execPath, [`${ROOT}docs/certify.mjs`, ...ROWS], {
      env: { ...env, BASE_URL: `${url}/api/v1` },
    }),
  );
  for (const { code, out, err } of await Promise.all(runs))
    expect({
      code,
      err,
      rows: out
        .trim()
        .split('\n')
        .filter((row) => !row.endsWith('  ok')),
    }).toEqual({
      code: 0,
      err: '',
      rows: [expect.stringMatching(/^0 of \d+ rows differ$/)],
    });
  await world.deletePartner('certify');
});
