/** The limit of requests per address: shared by real processes, before authentication, and in force without Redis. */
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { startRedis, type Store } from '../../deploy/local/stores.ts';
import type { ServiceProcess } from '../../deploy/local/processes.ts';
import { bodies, expectAnswer, expectRecord } from '../support/door.ts';
import { send, type Answer } from '../support/http.ts';
import { eventually } from '../support/wait.ts';
import { openWorld, type InProcess, type World } from '../support/world.ts';

const FALLBACK = 'partner_ingest_limiter_fallback';
const DECISIONS = 'partner_ingest_limiter_decisions_total';
let world: World;
let redis: Store;
let children: readonly [ServiceProcess, ServiceProcess];

beforeAll(async () => {
  world = await openWorld({ environment: { TRUSTED_PROXIES: '127.0.0.0/8' } });
  const limits = { RATE_LIMIT_MAX: '300', RATE_LIMIT_WINDOW_SECONDS: '60' };
  const [first, second, store] = await Promise.all([
    world.spawn('ingest', limits),
    world.spawn('ingest', limits),
    startRedis({ log: () => {} }),
  ]);
  children = [first, second];
  redis = store;
});
afterAll(async () => {
  await world.close();
  await redis.stop();
});

const post = (
  process: { readonly url: string },
  address: string,
  key: string | undefined = world.key,
): Promise<Answer> =>
  send(process.url, { ...(key === '' ? {} : { key }), body: '{}', headers: { 'x-forwarded-for': address } });

/** A 429 in full; gives its request_id. */
async function expectLimited(answer: Answer, max: number, windowSeconds: number): Promise<string> {
  const retryAfter = answer.headers['retry-after'] ?? '';
  expect(retryAfter).toMatch(/^[1-9]\d*$/);
  expect(Number(retryAfter)).toBeLessThanOrEqual(windowSeconds);
  const id = expectAnswer(
    answer,
    429,
    `{"error":"Too many requests: at most ${max} in ${windowSeconds} seconds from one address; retry after ${retryAfter} seconds"}`,
  );
  expect(await world.record(id)).toBeNull();
  return id;
}

/** Sends one after the other, so that waiting 50 ms each for Redis would add up to 2 s; every one is a 202. */
async function expectServed(ingest: InProcess, count: number): Promise<void> {
  const startedAt = performance.now();
  for (let index = 0; index < count; index += 1) {
    const requestAt = performance.now();
    const id = expectAnswer(await post(ingest, `192.0.3.${index}`), 202, bodies.accepted);
    expect(performance.now() - requestAt).toBeLessThan(1_000);
    expect((await world.record(id))?.state).toBe('recorded');
  }
  expect(performance.now() - startedAt).toBeLessThan(1_500);
}

async function expectLocalLimit(ingest: InProcess, address: string, max: number): Promise<void> {
  expect(await world.metric(ingest, FALLBACK)).toBe(1);
  for (let count = 0; count < max; count += 1) expect((await post(ingest, address)).status).toBe(202);
  await expectLimited(await post(ingest, address), max, 60);
  expect(await world.metric(ingest, DECISIONS, { store: 'local', decision: 'refused' })).toBeGreaterThan(0);
}

async function expectSharedAgain(ingest: InProcess, address: string): Promise<void> {
  await eventually('the limiter to go back to Redis', async () => (await world.metric(ingest, FALLBACK)) === 0);
  const before = await world.metric(ingest, DECISIONS, { store: 'redis', decision: 'served' });
  expect((await post(ingest, address)).status).toBe(202);
  expect(await world.metric(ingest, DECISIONS, { store: 'redis', decision: 'served' })).toBe(before + 1);
  expect(await world.metric(ingest, FALLBACK)).toBe(0);
}

test('two processes serve 300 together and refuse the rest, which are counted per address and window', async () => {
  const address = '192.0.2.1';
  const served: Answer[] = [];
  for (let round = 0; round < 15; round += 1) {
    served.push(
      ...(await Promise.all(
        Array.from({ length: 20 }, (_, index) => post(children[index % 2 === 0 ? 0 : 1], address)),
      )),
    );
  }
  expect(served).toHaveLength(300);
  const ids = served.map((answer) => expectAnswer(answer, 202, bodies.accepted));
  await expectRecord(world, ids.at(-1) ?? '', {
    state: 'recorded',
    httpStatus: 202,
    partnerId: 'demo',
    remoteIp: address,
    bytes: Buffer.from('{}'),
  });
  expect(await world.records({ remoteIp: address, state: 'recorded' })).toHaveLength(300);

  const refused: string[] = [];
  for (let count = 0; count < 25; count += 1)
    refused.push(await expectLimited(await post(children[0], address), 300, 60));
  await expectLimited(await post(children[1], address), 300, 60);
  expect((await post(children[0], '192.0.2.2')).status).toBe(202);

  const counted = await eventually('the counts of both processes', async () => {
    const found = (await world.rateLimited()).filter((record) => record.address === address);
    return found.reduce((sum, record) => sum + record.count, 0) === 26 && found;
  });
  const kept = counted.toSorted((a, b) => Number(a.windowStart) - Number(b.windowStart));
  for (const record of kept) {
    expect(record).toMatchObject({ _id: `${address} ${record.windowStart.toISOString()}`, address });
    expect(record.windowStart.getTime() % 60_000).toBe(0);
    expect(record.expiresAt.getTime()).toBe(record.windowStart.getTime() + 7 * 86_400_000);
    expect(record.requestIds.length).toBe(Math.min(20, record.count));
  }
  // Which process writes first is open; the ids of one are in order of arrival.
  const known = kept.flatMap((record) => record.requestIds).filter((id) => refused.includes(id));
  expect(known).toEqual(known.toSorted());
  expect(known.length).toBeGreaterThanOrEqual(19);
});

describe('in one process', () => {
  test('the limit comes before authentication, so guessing keys is limited, too', async () => {
    const ingest = await world.start('ingest', { RATE_LIMIT_MAX: '3' });
    expectAnswer(await post(ingest, '192.0.2.10', ''), 401, bodies.keyMissing);
    expectAnswer(await post(ingest, '192.0.2.10', 'guess'), 401, bodies.keyInvalid);
    expectAnswer(await post(ingest, '192.0.2.10', world.inactiveKey), 403, bodies.partnerInactive);
    for (const key of ['', 'guess', world.inactiveKey, world.key])
      await expectLimited(await post(ingest, '192.0.2.10', key), 3, 60);
    expectAnswer(await post(ingest, '192.0.2.11'), 202, bodies.accepted);
    await ingest.close();
  });

  test('other methods and paths do not count', async () => {
    const ingest = await world.start('ingest', { RATE_LIMIT_MAX: '1' });
    const headers = { 'x-forwarded-for': '192.0.2.20' };
    for (let count = 0; count < 3; count += 1) {
      expect((await send(ingest.url, { method: 'GET', headers })).status).toBe(405);
      expect((await send(ingest.url, { path: '/', headers })).status).toBe(404);
    }
    expectAnswer(await post(ingest, '192.0.2.20'), 202, bodies.accepted);
    await expectLimited(await post(ingest, '192.0.2.20'), 1, 60);
    await ingest.close();
  });

  test('a refused body of 10 MB gets its answer and no reset', async () => {
    const ingest = await world.start('ingest', { RATE_LIMIT_MAX: '1' });
    const headers = { 'x-forwarded-for': '192.0.2.30' };
    await post(ingest, '192.0.2.30');
    const answer = await send(ingest.url, { key: world.key, headers, body: Buffer.alloc(10_000_000, 'x') });
    await expectLimited(answer, 1, 60);
    await ingest.close();
  });

  test('when the window has passed the address is served again', async () => {
    const ingest = await world.start('ingest', { RATE_LIMIT_MAX: '2', RATE_LIMIT_WINDOW_SECONDS: '1' });
    const statuses: number[] = [];
    await eventually('a 202 after a 429', async () => {
      const answer = await post(ingest, '192.0.2.40');
      if (answer.status === 429) await expectLimited(answer, 2, 1);
      statuses.push(answer.status);
      return statuses.includes(429) && answer.status === 202;
    });
    expect(statuses.slice(0, 3)).toEqual([202, 202, 429]);
    await ingest.close();
  });
});

describe('without Redis', () => {
  test('away at the start, killed and back, hung and back: always served, always limited', async () => {
    await redis.signal('SIGKILL');
    const ingest = await world.start('ingest', { REDIS_URL: redis.url, RATE_LIMIT_MAX: '5' });
    await expectServed(ingest, 40);
    await expectLocalLimit(ingest, '192.0.4.1', 5);
    await redis.restart();
    await expectSharedAgain(ingest, '192.0.4.2');

    await redis.signal('SIGKILL');
    await expectServed(ingest, 40);
    await expectLocalLimit(ingest, '192.0.4.3', 5);
    await redis.restart();
    await expectSharedAgain(ingest, '192.0.4.4');

    await redis.signal('SIGSTOP');
    await expectServed(ingest, 40);
    await expectLocalLimit(ingest, '192.0.4.5', 5);
    await redis.signal('SIGCONT');
    await expectSharedAgain(ingest, '192.0.4.6');
    expect(await world.metric(ingest, 'partner_ingest_requests_total', { status: '500' })).toBe(0);
    await ingest.close();
  });

  test('hung under many requests at once nobody waits long, and none fails', async () => {
    const ingest = await world.start('ingest', { REDIS_URL: redis.url });
    expect((await post(ingest, '192.0.5.1')).status).toBe(202);
    await redis.signal('SIGSTOP');
    const startedAt = performance.now();
    const answers = await Promise.all(Array.from({ length: 100 }, (_, index) => post(ingest, `192.0.5.${index}`)));
    expect(performance.now() - startedAt).toBeLessThan(1_500);
    expect(new Set(answers.map((answer) => answer.status))).toEqual(new Set([202]));
    await redis.signal('SIGCONT');
    await expectSharedAgain(ingest, '192.0.5.200');
    await ingest.close();
  });
});
