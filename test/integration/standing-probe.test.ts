/**
 * The standing probe of the leading controller, and `helm test`: a submission of a test partner
 * over the partners' own interface, and what they say when it does not go through.
 */
import { afterEach, expect, test } from '@jest/globals';
import { execFile } from 'node:child_process';
import { createServer, type RequestListener, type Server } from 'node:http';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { standingProbe } from '../../internal/controller/standing-probe.ts';
import { freePort } from '../../deploy/local/stores/wait.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { systemClock } from '../../internal/platform/process/clock.ts';
import { createControllerMetrics } from '../../internal/telemetry/metrics.ts';
import { createRegistry } from '../../internal/platform/process/registry.ts';
import { ROOT } from '../../tools/root.ts';
import { listen } from '../support/listen.ts';
import { read } from '../support/pages.ts';
import { HANG_MS, eventually } from '../support/wait.ts';
import { NO_REDIS, worldOf, type InProcess } from '../support/world.ts';

const testKey = newApiKey().replace('pik_', 'pik_test_');
const OPERATOR = 'kubectl exec deploy/processor -- partner-ingest';
const annotations = { 'partner-ingest.io/mode': 'test' };
const { world, controller, ingest, processor } = await worldOf(
  ['controller', 'ingest', 'processor'],
  {
    controller: false,
    documentedRights: true,
    partners: [{ partner: 'test', keys: [testKey], annotations }],
  },
);

/** The pod of `helm test` in an install with these processes. */
async function helmTest(services: readonly InProcess[], seconds = 60) {
  const keyFile = join(world.keyFolder, 'test-key');
  writeFileSync(keyFile, testKey);
  const program = read('charts/partner-ingest/files/send-one.mjs').replace(
    './dist/internal/controller/sandbox-submission.js',
    './internal/controller/sandbox-submission.ts',
  );
  return promisify(execFile)(process.execPath, ['--input-type=module', '--eval', program], {
    cwd: ROOT,
    timeout: HANG_MS,
    env: {
      ADMIN_ADDRESSES: services.map(({ adminUrl }) => new URL(adminUrl).host).join(' '),
      BASE_URL: `${ingest.url}/api/v1`,
      TIMEOUT_SECONDS: String(seconds),
      EMAIL: 'helm-test@example.com',
      OPERATOR,
      PROBE_KEY_FILE: keyFile,
    },
  });
}

test('helm test sees a submission of the test partner through, without e-mail or rights on the database', async () => {
  const { stdout } = await helmTest([ingest, processor, controller]);
  expect(stdout).toContain('the whole way works');
  expect(world.mail.mails).toEqual([]);
});

test('helm test fails where a pod is ready with a warning, and says what to set', async () => {
  const alone = await world.start('ingest', { REDIS_URL: NO_REDIS });
  await expect(helmTest([alone, processor])).rejects.toMatchObject({
    stderr: expect.stringMatching(/Redis at 127\.0\.0\.1:1: the connection is refused/),
  });
  await alone.close();
});

/** What the probe says of a round, and its values. */
async function probed(baseUrl: string, key = testKey) {
  const registry = createRegistry('controller');
  const metrics = createControllerMetrics(registry);
  const target = { baseUrl, key, setting: 'PROBE_URL' };
  const probe = standingProbe({ target, clock: systemClock, metrics });
  const said = await probe.run(new AbortController().signal).then(
    () => '',
    (error: unknown) => (error as Error).message,
  );
  const lines = (await registry.metrics()).matchAll(
    /^partner_ingest_probe_(\w+)\{(?:step="(\w+)",)?.*\} (\S+)$/gm,
  );
  const values = [...lines].map(([, name, step, value]) =>
    step === undefined ? `${name} ${value}` : step,
  );
  return { said, values };
}

test('each probe is a submission of its own, completed, and timed by step', async () => {
  for (let round = 0; round < 2; round += 1)
    expect(await probed(`${ingest.url}/api/v1`)).toEqual({
      said: '',
      values: ['success 1', 'accept', 'outcome'],
    });
});

const servers: Server[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) server.close().closeAllConnections();
});
async function serverOf(listener: RequestListener): Promise<string> {
  const server = createServer(listener);
  servers.push(server);
  return `http://127.0.0.1:${await listen(server)}/api/v1`;
}
const accepting =
  (state: string, reasons: readonly object[] = []): RequestListener =>
  ({ method }, response) =>
    response
      .writeHead(method === 'POST' ? 202 : 200, { 'preference-applied': 'wait=30' })
      .end(JSON.stringify({ data: { request_id: 'req_1', state, reasons } }));
const silent: RequestListener = () => {};

test.each<[string, () => Promise<string>, string | undefined, RegExp, string[]]>([
  [
    'a key that ingest does not know',
    async () => `${ingest.url}/api/v1`,
    `${testKey}x`,
    /^the step accept fails: expected 202, got 401: \{"error":"Unauthorized: Invalid API Key"\}$/,
    [],
  ],
  [
    'a live key, which would make real accounts',
    async () => serverOf(silent),
    newApiKey(),
    /^the step accept fails: the key does not begin "pik_test_": a live key would make/,
    [],
  ],
  [
    'nobody at the address',
    async () => `http://127.0.0.1:${await freePort()}/api/v1`,
    undefined,
    /accept fails: Ingest at 127\.0\.0\.1:\d+: the connection is refused .* in PROBE_URL$/,
    [],
  ],
  [
    'a page of a balancer',
    () => serverOf((_, response) => response.writeHead(202).end('<h1>Wait</h1>')),
    undefined,
    /accept fails: expected 202, got 202: <h1>Wait/,
    [],
  ],
  [
    'a redirect',
    () => serverOf((_, response) => response.writeHead(301, { location: '/' }).end()),
    undefined,
    /accept fails: expected 202, got 301/,
    [],
  ],
  [
    'another end',
    () => serverOf(accepting('rejected', [{ message: 'No EIN.' }])),
    undefined,
    /^the step outcome fails: req_1 ended rejected: No EIN\.$/,
    ['accept'],
  ],
])('%s: the step that fails is told, with the answer', async (_, url, key, says, steps) => {
  const { said, values } = await probed(await url(), key);
  expect(said).toMatch(says);
  expect(said).not.toContain(testKey);
  expect(values).toEqual(['success 0', ...steps]);
});

test('helm test that is not in time says how the request stands, and what an operator may ask', async () => {
  await processor.close();
  await expect(helmTest([ingest], 1)).rejects.toMatchObject({
    stderr: expect.stringMatching(
      /^(req_\w+) is still processing after 1 s\n {2}what became of it: kubectl .* show \1\n$/,
    ),
  });
});

test('the leading controller probes by its settings, and without a key it has no value', async () => {
  expect(await (await fetch(`${controller.adminUrl}/metrics`)).text()).not.toMatch(
    /^partner_ingest_probe/m,
  );
  await controller.close();
  const PROBE_URL = await serverOf(accepting('completed'));
  const probing = await world.start('controller', { PROBE_URL, PROBE_KEY: testKey });
  await eventually(
    'a probe',
    async () => (await world.metric(probing, 'partner_ingest_probe_success')) === 1,
  );
});
