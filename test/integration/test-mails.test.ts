/** E-mails of tests and of the probe, from outside: whom they reach, how many, and after whom. */
import { afterEach, expect, test } from '@jest/globals';
import { mailProbeInterval } from '../../internal/application/sandbox-endings.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { MODE_ANNOTATION } from '../../internal/partner/key-terms.ts';
import { send } from '../support/http.ts';
import { eventually } from '../support/wait.ts';
import { newApplication, requestIdOf, worldOf, type InProcess } from '../support/world.ts';

const keyOf = () => newApiKey({ test: true });
const [probeKey, testKey, otherKey, namesakeKey] = [keyOf(), keyOf(), keyOf(), keyOf()];
const PROBE_MAIL_TO = 'probe@example.net';
const TEST_MAIL_TO = 'tests@example.net';
const asTest = { annotations: { [MODE_ANNOTATION]: 'test' } };
const { world, ingest } = await worldOf(['controller', 'ingest'], {
  documentedRights: true,
  controller: false,
  // Nothing listens there, so the controller's own probe sends nothing.
  environment: { PROBE_MAIL_TO, PROBE_KEY: probeKey, PROBE_URL: 'http://127.0.0.1:1/api/v1' },
  partners: [
    { partner: 'probe', keys: [probeKey], ...asTest },
    { partner: 'demo', name: 'tests-demo', keys: [testKey], ...asTest },
    { partner: 'other', name: 'tests-other', keys: [otherKey], ...asTest },
    { partner: 'probe', name: 'namesake', keys: [namesakeKey], ...asTest },
  ],
});
let processor: InProcess | undefined;
async function startProcessor(settings = {}): Promise<InProcess> {
  processor = await world.start('processor', settings);
  return processor;
}
afterEach(async () => {
  await processor?.close();
  world.mail.clear();
});

async function submitted(fields: object, key: string): Promise<string> {
  const answer = await send(ingest.url, { key, body: JSON.stringify(fields) });
  expect(answer.status).toBe(202);
  return requestIdOf(answer);
}
const submitAll = (count: number, key: string, fields: object = {}) =>
  Promise.all(
    Array.from({ length: count }, () => submitted({ ...newApplication(), ...fields }, key)),
  );
const statesOf = async (ids: readonly string[]): Promise<string[]> =>
  (await world.records({ _id: { $in: ids } })).map(({ state }) => state).toSorted();
async function allAre(wanted: string, ids: readonly string[]): Promise<void> {
  const isWanted = async () => (await statesOf(ids)).every((state) => state === wanted);
  await eventually(`${ids.length} to be ${wanted}`, isWanted);
}
const recipients = () => world.mail.mails.map(({ envelopeTo }) => envelopeTo.join());
const counted = (to: string, result = 'accepted') =>
  world.metric(processor!, 'partner_ingest_test_mails_total', { to, result });

test('only the key of the controller mails PROBE_MAIL_TO, only with the EIN of the probe, and once', async () => {
  await startProcessor();
  const ein = String(mailProbeInterval(new Date())).padStart(9, '0');
  const email = `probe-mail+${ein}@example.com`;
  const tests = [
    ...(await submitAll(40, testKey, { email, ein: '000000000' })),
    ...(await submitAll(3, testKey, { email, ein })),
    ...(await submitAll(3, namesakeKey, { email, ein })),
    ...(await submitAll(10, probeKey, { email, ein: '000000000' })),
  ];
  await eventually('their ends', async () =>
    (await statesOf(tests)).every((state) => ['completed', 'rejected'].includes(state)),
  );
  expect(recipients()).toEqual([]);
  expect(await counted('PROBE_MAIL_TO')).toBe(0);

  const probes = await submitAll(10, probeKey, { email, ein });
  await eventually('one', async () => (await statesOf(probes)).includes('completed'));
  await eventually('the others', async () => !(await statesOf(probes)).includes('recorded'));
  expect(await statesOf(probes)).toEqual(['completed', ...Array(9).fill('rejected')]);
  expect(recipients()).toEqual([PROBE_MAIL_TO]);
  expect(await counted('PROBE_MAIL_TO')).toBe(1);
});

test('the probe of each minute mails nobody, and needs no relay', async () => {
  await startProcessor({ TEST_MAIL_TO, SMTP_URL: 'smtp://127.0.0.1:1' });
  const fields = { email: `probe+${Date.now()}@example.com`, ein: '000000000' };
  await allAre('completed', await submitAll(1, probeKey, fields));
});

test('a live e-mail is handed over before all tests that wait for the pace', async () => {
  const mailed = { TEST_MAIL_TO, MAIL_PER_SECOND: '5' };
  await startProcessor(mailed);
  // Its moment shows where the pace is kept.
  await allAre('completed', await submitAll(1, world.key));
  world.mail.clear();
  const { redis } = world.stores;
  const [pace] = await redis.keys('*mail-pace*');
  const [seconds] = await redis.time();
  await redis.set(pace!, (Number(seconds) + 15) * 1_000_000, 'PX', 60_000);

  const tests = await submitAll(20, testKey);
  await allAre('account_created', tests);
  const live = await submitAll(3, world.key);
  await allAre('account_created', live);
  expect(recipients()).toEqual([]);
  await allAre('completed', [...live, ...tests]);
  const order = recipients().map((to) => (to === TEST_MAIL_TO ? 'test' : 'live'));
  expect(order.slice(0, 3)).toEqual(['live', 'live', 'live']);
  expect(order).toHaveLength(23);
  expect(await counted('TEST_MAIL_TO')).toBe(20);
});

test("one partner's flood of tests does not hold up another partner's test, nor the probe's e-mail", async () => {
  await startProcessor({ TEST_MAIL_TO, MAIL_PER_SECOND: '5' });
  const flood = await submitAll(200, testKey);
  await eventually('the first of them', () => recipients().length > 0);
  const ein = String(mailProbeInterval(new Date()) + 1).padStart(9, '0');
  const [other] = await submitAll(1, otherKey);
  const [probe] = await submitAll(1, probeKey, { email: `probe-mail+${ein}@example.com`, ein });
  await allAre('completed', [other!, probe!]);
  // At five a second, most of the flood still waits.
  expect(await statesOf(flood)).toContain('account_created');
  await world.stores.requests.deleteMany({});
});

test('tests wait for a relay that is away, as live e-mails do, and ask it once', async () => {
  await startProcessor({ TEST_MAIL_TO });
  await world.mail.stopListening();
  const tests = await submitAll(10, testKey);
  await eventually(
    'the relay to be away',
    async () =>
      (await world.metric(processor!, 'partner_ingest_worker_paused', { waits_for: 'relay' })) ===
      1,
  );
  await allAre('account_created', tests);
  expect(await counted('TEST_MAIL_TO', 'unreachable')).toBe(1);
  await world.mail.listenAgain();
  await allAre('completed', tests);
  expect(await counted('TEST_MAIL_TO')).toBe(10);
});
