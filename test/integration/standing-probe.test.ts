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
import { MAIL_PROBE_EVERY_MS } from '../../internal/application/sandbox-endings.ts';
import { standingProbe } from '../../internal/controller/standing-probe.ts';
import { freePort } from '../../deploy/local/stores/wait.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { systemClock, type Clock } from '../../internal/platform/process/clock.ts';
import { defined } from '../../internal/platform/process/defined.ts';
import { SupportQueries } from '../../internal/submission/support-queries.ts';
import { createControllerMetrics } from '../../internal/telemetry/metrics.ts';
import { createRegistry } from '../../internal/platform/process/registry.ts';
import { ROOT } from '../../tools/root.ts';
import { listen } from '../support/listen.ts';
import type { FaultChoice } from '../support/mail-catcher.ts';
import { read } from '../support/pages.ts';
import { HANG_MS, eventually } from '../support/wait.ts';
import { NO_REDIS, worldOf, type InProcess } from '../support/world.ts';

const testKey = newApiKey().replace('pik_', 'pik_test_');
const MAIL_TO = 'probe@example.net';
const OPERATOR = 'kubectl exec deploy/processor -- partner-ingest';
const annotations = { 'partner-ingest.io/mode': 'test' };
const { world, controller, ingest, processor } = await worldOf(
  ['controller', 'ingest', 'processor'],
  {
    controller: false,
    // Nothing listens there: each test has leaders of its own, whose key this controller marks.
    environment: {
      PROBE_MAIL_TO: MAIL_TO,
      PROBE_KEY: testKey,
      PROBE_URL: 'http://127.0.0.1:1/api/v1',
    },
    documentedRights: true,
    partners: [{ partner: 'test', keys: [testKey], annotations }],
  },
);

/** The pod of `helm test` in an install with these processes. */
async function helmTest(services: readonly InProcess[], seconds = 60, PROBE_MAIL_TO = '') {
  const keyFile = join(world.keyFolder, 'test-key');
  writeFileSync(keyFile, testKey);
  const program = read('charts/partner-ingest/files/send-one.mjs').replaceAll(
    /\.\/dist\/(internal\/\S+)\.js/g,
    './$1.ts',
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
      PROBE_MAIL_TO,
    },
  });
}

test('helm test sees a submission of the test partner through, without e-mail or rights on the database', async () => {
  const { stdout } = await helmTest([ingest, processor, controller]);
  expect(stdout).toContain('the whole way works');
  expect(stdout).toContain('probe.mailTo is empty: no e-mail of the probe goes through the relay');
  expect(world.mail.mails).toEqual([]);
});

test('helm test fails where a pod is ready with a warning, and says what to set', async () => {
  const alone = await world.start('ingest', { REDIS_URL: NO_REDIS });
  await expect(helmTest([alone, processor])).rejects.toMatchObject({
    stderr: expect.stringMatching(/Redis at 127\.0\.0\.1:1: the connection is refused/),
  });
  await alone.close();
});

/** A leader's probe: what it says of a round, and its values. */
function proberOf(
  baseUrl: string,
  {
    key = testKey,
    clock = systemClock,
    mails = false,
  }: { readonly key?: string; readonly clock?: Clock; readonly mails?: boolean } = {},
) {
  const registry = createRegistry('controller');
  const metrics = createControllerMetrics(registry);
  const target = { baseUrl, key, setting: 'PROBE_URL' };
  const submissions = new SupportQueries(world.stores.db);
  const records = { read: (id: string) => submissions.byId(id) };
  const options = { target, clock, metrics, ...(mails && { mails: records }) };
  const probe = standingProbe(options);
  probe.forget();
  const round = async () => {
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
  };
  return Object.assign(round, { registry });
}
const probed = (baseUrl: string, key?: string) => proberOf(baseUrl, { ...defined({ key }) })();

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

test.each<[string, () => Promise<string>, RegExp, key?: string]>([
  [
    'a key that ingest does not know',
    async () => `${ingest.url}/api/v1`,
    /^the step accept fails: expected 202, got 401: \{"error":"Unauthorized: Invalid API Key"\}$/,
    `${testKey}x`,
  ],
  [
    'a live key, which would make real accounts',
    () => serverOf(silent),
    /^the step accept fails: the key does not begin "pik_test_": a live key would make/,
    newApiKey(),
  ],
  [
    'nobody at the address',
    async () => `http://127.0.0.1:${await freePort()}/api/v1`,
    /accept fails: Ingest at 127\.0\.0\.1:\d+: the connection is refused .* in PROBE_URL$/,
  ],
  [
    'a page of a balancer',
    () => serverOf((_, response) => response.writeHead(202).end('<h1>Wait</h1>')),
    /accept fails: expected 202, got 202: <h1>Wait/,
  ],
  [
    'a redirect',
    () => serverOf((_, response) => response.writeHead(301, { location: '/' }).end()),
    /accept fails: expected 202, got 301/,
  ],
  [
    'another end',
    () => serverOf(accepting('rejected', [{ message: 'No EIN.' }])),
    /^the step outcome fails: req_1 ended rejected: No EIN\.$/,
  ],
])('%s: the step that fails is told, with the answer', async (_, url, says, key = testKey) => {
  const { said, values } = await probed(await url(), key);
  expect(said).toMatch(says);
  expect(said).not.toContain(testKey);
  expect(values).toEqual(['success 0', ...(said.includes('the step outcome') ? ['accept'] : [])]);
});

const testAccounts = world.stores.db.collection('test_accounts');
/** It stands still, so that no ten minutes end within a test. */
function clockAt(now: Date): Clock {
  return { now: () => now, monotonicMs: () => performance.now() };
}

test('one e-mail of the probe goes through the relay in ten minutes, however many leaders ask', async () => {
  const url = `${ingest.url}/api/v1`;
  const now = new Date();
  const leaderAt = (at: Date) => proberOf(url, { clock: clockAt(at), mails: true });
  const leader = leaderAt(now);
  const works = ['success 1', 'mail_success 1', 'accept', 'outcome'];
  expect(await leader()).toEqual({ said: '', values: works });
  expect(await leader()).toEqual({ said: '', values: works });
  // Leaders that begin again, three at once, send none and know what became of it.
  for (const restarted of await Promise.all([1, 2, 3].map(() => leaderAt(now)())))
    expect(restarted).toEqual({ said: '', values: works });
  expect(world.mail.mails.map(({ envelopeTo }) => envelopeTo)).toEqual([[MAIL_TO]]);
  const next = new Date(now.getTime() + MAIL_PROBE_EVERY_MS);
  const both = await Promise.all([1, 2].map(() => leaderAt(next)()));
  expect(both.map(({ said }) => said)).toEqual(['', '']);
  expect(world.mail.mails).toHaveLength(2);
  expect(await world.stores.accounts.countDocuments()).toBe(0);
  expect(JSON.stringify(await testAccounts.find().toArray())).not.toContain(MAIL_TO);
});

test.each<[string, FaultChoice | undefined, RegExp]>([
  [
    'refuses the address',
    () => ({ at: 'rcpt', answer: { code: 550, message: '5.1.1 no such user' } }),
    /ended undeliverable: the mail server did not accept .* \(550 5\.1\.1\): 550 5\.1\.1 no such user$/,
  ],
  [
    'refuses our sender',
    () => ({ at: 'mail', answer: { code: 553, message: '5.7.1 sender not allowed' } }),
    /did not accept our sender address \(553 5\.7\.1\): 553 5\.7\.1 sender not allowed$/,
  ],
  [
    'says later',
    () => ({ at: 'data', answer: { code: 451, message: '4.7.1 try again' } }),
    /\(451 4\.7\.1\): 451 4\.7\.1 try again$/,
  ],
  [
    'hangs up after the content',
    () => ({ at: 'data', cut: 'before-store' }),
    /ended the connection without an answer after the mail was sent/,
  ],
  ['is away', undefined, /the mail server could not be used \(E/],
])('a relay that %s: its words are told, and the e-mail is tried once', async (_, fault, says) => {
  await testAccounts.deleteMany({});
  world.mail.clear();
  const probe = proberOf(`${ingest.url}/api/v1`, { clock: clockAt(new Date()), mails: true });
  if (fault === undefined) await world.mail.stopListening();
  else world.mail.setFault(fault);
  const { said, values } = await probe();
  world.mail.setFault(undefined);
  if (fault === undefined) await world.mail.listenAgain();
  expect(said).toMatch(/^the step mail fails: req_/);
  expect(said).toMatch(says);
  expect(values).toEqual(['success 1', 'mail_success 0', 'accept', 'outcome']);
  // Nothing is left that a relay that is back would get.
  expect((await probe()).said).toBe(said);
  const open = { state: { $in: ['recorded', 'account_created'] } } as const;
  expect(await world.stores.requests.countDocuments(open)).toBe(0);
  expect(world.mail.mails).toEqual([]);
});

test('helm test sends no e-mail: it says what became of the last one of the controller that leads', async () => {
  await testAccounts.deleteMany({});
  world.mail.clear();
  const now = new Date();
  const leader = proberOf(`${ingest.url}/api/v1`, { clock: clockAt(now), mails: true });
  const url = await serverOf(({ url: path }, response) =>
    path === '/readyz'
      ? response.end('{"faults":[]}')
      : void leader.registry.metrics().then((text) => response.end(text)),
  );
  const pod = { url: '', adminUrl: new URL(url).origin, close: async () => {} };
  await expect(helmTest([ingest, pod], 5, MAIL_TO)).rejects.toMatchObject({
    stderr: 'the controller that leads has sent no e-mail to probe.mailTo yet\n',
  });
  expect((await leader()).said).toBe('');
  for (let again = 0; again < 2; again += 1)
    expect((await helmTest([ingest, pod], 60, MAIL_TO)).stdout).toContain(
      'the relay took the last e-mail of the probe to probe.mailTo',
    );
  expect(world.mail.mails).toHaveLength(1);
});

test('helm test that is not in time says how the request stands, and what an operator may ask', async () => {
  await processor.close();
  await expect(helmTest([ingest], 1)).rejects.toMatchObject({
    stderr: expect.stringMatching(
      /^(req_\w+) is still processing after 1 s\n {2}what became of it: kubectl .* show \1\n$/,
    ),
  });
});

test('an e-mail that cannot go out now goes out never, and is told', async () => {
  await testAccounts.deleteMany({});
  world.mail.clear();
  const url = `${ingest.url}/api/v1`;
  const mails = true;
  const without = await world.start('processor', { PROBE_MAIL_TO: '' });
  const unset = await proberOf(url, { clock: clockAt(new Date()), mails })();
  expect(unset.said).toMatch(/not asked: PROBE_MAIL_TO is not set at the processor$/);
  await without.close();
  // As of processors that were away.
  const now = new Date(Date.now() - 3 * MAIL_PROBE_EVERY_MS);
  const back = await world.start('processor');
  const late = await proberOf(url, { clock: clockAt(now), mails })();
  expect(late.said).toMatch(/not asked: it is too late for this e-mail$/);
  await back.close();
  expect(world.mail.mails).toEqual([]);
});

test('the leading controller probes by its settings, and without a key it has no value', async () => {
  await controller.close();
  const without = await world.start('controller', { PROBE_KEY: '', PROBE_MAIL_TO: '' });
  expect(await (await fetch(`${without.adminUrl}/metrics`)).text()).not.toMatch(
    /^partner_ingest_probe/m,
  );
  await without.close();
  const PROBE_URL = await serverOf(accepting('completed'));
  const probing = await world.start('controller', { PROBE_URL, PROBE_KEY: testKey });
  await eventually(
    'a probe',
    async () => (await world.metric(probing, 'partner_ingest_probe_success')) === 1,
  );
});
