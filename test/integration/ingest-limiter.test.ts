/**
 * The limit of requests per address: shared by real processes, before authentication, and in force
 * without Redis.
 */
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { Redis } from 'ioredis';
import { startRedis, type Store } from '../../deploy/local/stores.ts';
import type { ServiceProcess } from '../../deploy/local/processes.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { withDeadline } from '../../internal/platform/deadline.ts';
import { bodies, expectAnswer, expectRecord } from '../support/ingest.ts';
import { send, type Answer } from '../support/http.ts';
import { HANG_MS, eventually } from '../support/wait.ts';
import { openWorld, type InProcess, type World } from '../support/world.ts';

const FALLBACK = 'partner_ingest_limiter_fallback';
const DECISIONS = 'partner_ingest_limiter_decisions_total';
/** At a count in Redis that no process disturbs by counting on its own. */
const ATTEMPTS = 20;
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
/** Ingests that a test started and closes again, whatever becomes of it. */
const started: InProcess[] = [];
afterEach(async () => {
  for (const ingest of started.splice(0)) await ingest.close();
});

async function startIngest(overrides: Readonly<Record<string, string>>): Promise<InProcess> {
  const ingest = await world.start('ingest', overrides);
  started.push(ingest);
  return ingest;
}

const post = (
  process: { readonly url: string },
  address: string,
  key: string | undefined = world.key,
): Promise<Answer> =>
  send(process.url, {
    ...(key === '' ? {} : { key }),
    body: '{}',
    headers: { 'x-forwarded-for': address },
  });

/** A 429 in full; gives its request_id. */
async function expectLimited(
  answer: Answer,
  amount: number | string,
  windowSeconds: number,
  whose = 'one address',
): Promise<string> {
  const retryAfter = answer.headers['retry-after'] ?? '';
  expect(retryAfter).toMatch(/^[1-9]\d*$/);
  expect(Number(retryAfter)).toBeLessThanOrEqual(windowSeconds);
  const id = expectAnswer(
    answer,
    429,
    `{"error":"Too many requests: at most ${amount} in ${windowSeconds} seconds from ${whose}; retry after ${retryAfter} seconds"}`,
  );
  expect(await world.record(id)).toBeNull();
  return id;
}

/**
 * Sends one after the other; every one is a 202, and judged by the process itself: none asked Redis
 * and had an answer.
 */
async function expectServed(ingest: InProcess, count: number): Promise<void> {
  const judged = (store: string): Promise<number> => world.metric(ingest, DECISIONS, { store });
  const [byRedis, locally] = [await judged('redis'), await judged('local')];
  const startedAt = performance.now();
  for (let index = 0; index < count; index += 1) {
    const id = expectAnswer(await post(ingest, `192.0.3.${index}`), 202, bodies.accepted);
    expect((await world.record(id))?.state).toBe('recorded');
  }
  console.log(
    `${count} without Redis, one after the other: ${Math.round(performance.now() - startedAt)} ms`,
  );
  expect([await judged('redis'), await judged('local')]).toEqual([byRedis, locally + count]);
}

/**
 * How many of the requests of `expectServed` asked this Redis, be it that it heard of them later.
 */
async function askedOf(store: Store): Promise<number> {
  const client = new Redis(store.url);
  try {
    return (await client.keys('partner-ingest:limit:*192.0.3.*')).length;
  } finally {
    client.disconnect();
  }
}

let addresses = 0;

/**
 * Judges the count in Redis with a new address. On a busy machine Redis may take longer than ingest
 * waits for it; then a process counts on its own, as it should, and the count in Redis is judged by
 * another address.
 */
async function withSharedCount(
  processes: readonly { readonly adminUrl: string }[],
  judge: (address: string) => Promise<void>,
): Promise<void> {
  const alone = async (): Promise<number> => {
    const counts = await Promise.all(
      processes.map((each) => world.metric(each, DECISIONS, { store: 'local' })),
    );
    return counts.reduce((sum, count) => sum + count, 0);
  };
  for (let attempt = 1; ; attempt += 1) {
    for (const each of processes)
      await eventually(
        'the limiter to use Redis',
        async () => (await world.metric(each, FALLBACK)) === 0,
      );
    const before = await alone();
    addresses += 1;
    try {
      await judge(`192.0.2.${addresses}`);
      return;
    } catch (error) {
      if (attempt === ATTEMPTS || (await alone()) === before) throw error;
    }
  }
}

async function expectLocalLimit(ingest: InProcess, address: string, max: number): Promise<void> {
  expect(await world.metric(ingest, FALLBACK)).toBe(1);
  for (let count = 0; count < max; count += 1)
    expect((await post(ingest, address)).status).toBe(202);
  await expectLimited(await post(ingest, address), max, 60);
  expect(
    await world.metric(ingest, DECISIONS, { store: 'local', decision: 'refused' }),
  ).toBeGreaterThan(0);
}

/**
 * On a busy machine Redis may take longer than ingest waits for it once more; then another address
 * is counted in it.
 */
async function expectSharedAgain(ingest: InProcess): Promise<void> {
  const counted = (): Promise<number> =>
    world.metric(ingest, DECISIONS, { store: 'redis', decision: 'served' });
  await eventually('the limiter to count in Redis again', async () => {
    if ((await world.metric(ingest, FALLBACK)) !== 0) return false;
    const before = await counted();
    addresses += 1;
    expect((await post(ingest, `192.0.7.${addresses}`)).status).toBe(202);
    return (await counted()) === before + 1 && (await world.metric(ingest, FALLBACK)) === 0;
  });
}

test('Retry-After is what is left of the window, so that a retry then is served', () =>
  withSharedCount([children[0]], expectRestOfWindow));

async function expectRestOfWindow(address: string): Promise<void> {
  const startedAt = performance.now();
  for (let round = 0; round < 6; round += 1) {
    await Promise.all(Array.from({ length: 50 }, () => post(children[0], address)));
  }
  const answer = await post(children[0], address);
  await expectLimited(answer, 300, 60);
  // The window began with the first request, or after it.
  const leastLeft = 60 - (performance.now() - startedAt) / 1_000;
  expect(Number(answer.headers['retry-after'])).toBeGreaterThanOrEqual(Math.floor(leastLeft));
}

test('two processes serve 300 together and refuse the rest, which are counted per address and window', () =>
  withSharedCount(children, expectCountedTogether));

async function expectCountedTogether(address: string): Promise<void> {
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
  expect((await post(children[0], '192.0.6.1')).status).toBe(202);

  const counted = await eventually('the counts of both processes', async () => {
    const found = (await world.rateLimited()).filter((record) => record.address === address);
    return found.reduce((sum, record) => sum + record.count, 0) === 26 && found;
  });
  const kept = counted.toSorted((a, b) => Number(a.windowStart) - Number(b.windowStart));
  for (const record of kept) {
    expect(record).toMatchObject({
      _id: `${address} ${record.windowStart.toISOString()}`,
      address,
    });
    expect(record.windowStart.getTime() % 60_000).toBe(0);
    expect(record.expiresAt.getTime()).toBe(record.windowStart.getTime() + 7 * 86_400_000);
    expect(record.requestIds.length).toBe(Math.min(20, record.count));
  }
  // Which process writes first is open; the ids of one are in order of arrival.
  const known = kept.flatMap((record) => record.requestIds).filter((id) => refused.includes(id));
  expect(known).toEqual(known.toSorted());
  expect(known.length).toBeGreaterThanOrEqual(19);
}

/** The key of a new partner with these bounds, once all of `processes` know it. */
async function boundedPartner(
  partner: string,
  annotations: Readonly<Record<string, string>>,
  processes: readonly { readonly adminUrl: string }[],
): Promise<string> {
  const key = newApiKey();
  const counts = (): Promise<number[]> =>
    Promise.all(processes.map((each) => world.metric(each, 'partner_ingest_keys')));
  const before = await counts();
  await world.writePartner({ partner, keys: [key], annotations });
  await eventually('the key', async () =>
    (await counts()).every((count, index) => count > before[index]!),
  );
  return key;
}

test("a partner's own bounds hold over all processes and addresses, for it alone, and its metrics say so", () =>
  withSharedCount(children, async (address) => {
    const partner = `bounded-${address}`;
    const bounds = {
      'partner-ingest.io/max-per-minute': '20',
      'partner-ingest.io/max-megabytes-per-day': '1',
    };
    const key = await boundedPartner(partner, bounds, children);
    const big = Buffer.alloc(65_000, ' ');
    const sendBig = (index: number): Promise<Answer> =>
      send(children[index % 2 === 0 ? 0 : 1].url, {
        key,
        body: big,
        headers: { 'x-forwarded-for': `192.0.8.${index}` },
      });
    // 15 times 65,000 bytes are within a megabyte, one more is not. Blanks are no object, so each
    // is a 400.
    for (let index = 0; index < 15; index += 1) expect((await sendBig(index)).status).toBe(400);
    for (let index = 15; index < 19; index += 1)
      expect((await post(children[0], address, key)).status).toBe(202);
    await expectLimited(await sendBig(19), '1 megabytes', 86_400, 'this partner');
    await expectLimited(await post(children[1], address, key), 20, 60, 'this partner');
    expect((await post(children[1], address)).status).toBe(202);

    const answered = async (status: string): Promise<number> => {
      const each = children.map((one) =>
        world.metric(one, 'partner_ingest_partner_requests_total', { partner, status }),
      );
      return (await Promise.all(each)).reduce((sum, count) => sum + count);
    };
    expect([await answered('400'), await answered('202'), await answered('429')]).toEqual([
      15, 4, 2,
    ]);
  }));

describe('in one process', () => {
  test('the limit comes before authentication, so guessing keys is limited, too', async () => {
    const ingest = await startIngest({ RATE_LIMIT_MAX: '3' });
    await withSharedCount([ingest], async (address) => {
      expectAnswer(await post(ingest, address, ''), 401, bodies.keyMissing);
      expectAnswer(await post(ingest, address, 'guess'), 401, bodies.keyInvalid);
      expectAnswer(await post(ingest, address, world.inactiveKey), 403, bodies.partnerInactive);
      for (const key of ['', 'guess', world.inactiveKey, world.key])
        await expectLimited(await post(ingest, address, key), 3, 60);
    });
    expectAnswer(await post(ingest, '192.0.6.2'), 202, bodies.accepted);
  });

  test('other methods and paths do not count', async () => {
    const ingest = await startIngest({ RATE_LIMIT_MAX: '1' });
    await withSharedCount([ingest], async (address) => {
      const headers = { 'x-forwarded-for': address };
      for (let count = 0; count < 3; count += 1) {
        expect((await send(ingest.url, { method: 'GET', headers })).status).toBe(405);
        expect((await send(ingest.url, { path: '/', headers })).status).toBe(404);
      }
      expectAnswer(await post(ingest, address), 202, bodies.accepted);
      await expectLimited(await post(ingest, address), 1, 60);
    });
  });

  test('a refused body of 10 MB gets its answer and no reset', async () => {
    const ingest = await startIngest({ RATE_LIMIT_MAX: '1' });
    await withSharedCount([ingest], async (address) => {
      await post(ingest, address);
      const headers = { 'x-forwarded-for': address };
      const answer = await send(ingest.url, {
        key: world.key,
        headers,
        body: Buffer.alloc(10_000_000, 'x'),
      });
      await expectLimited(answer, 1, 60);
    });
  });

  test('when the window has passed the address is served again', async () => {
    const ingest = await startIngest({ RATE_LIMIT_MAX: '2', RATE_LIMIT_WINDOW_SECONDS: '1' });
    const statuses: number[] = [];
    // Three at once: on a busy machine a window may pass between two that follow each other.
    await eventually('a 202 after a 429', async () => {
      const limitedBefore = statuses.includes(429);
      const answers = await Promise.all([1, 2, 3].map(() => post(ingest, '192.0.6.3')));
      for (const answer of answers) if (answer.status === 429) await expectLimited(answer, 2, 1);
      statuses.push(...answers.map(({ status }) => status));
      return limitedBefore && answers.some(({ status }) => status === 202);
    });
    expect(statuses.slice(0, 3).filter((status) => status === 202).length).toBeGreaterThanOrEqual(
      2,
    );
  });
});

describe('without Redis', () => {
  afterEach(() => redis.restart());

  test('away at the start, killed and back, hung and back: always served, always limited', async () => {
    await redis.signal('SIGKILL');
    const ingest = await startIngest({ REDIS_URL: redis.url, RATE_LIMIT_MAX: '5' });
    await expectServed(ingest, 40);
    await expectLocalLimit(ingest, '192.0.4.1', 5);
    const key = await boundedPartner('bounded-alone', { 'partner-ingest.io/max-per-minute': '2' }, [
      ingest,
    ]);
    for (const address of ['192.0.4.11', '192.0.4.12'])
      expect((await post(ingest, address, key)).status).toBe(202);
    await expectLimited(await post(ingest, '192.0.4.13', key), 2, 60, 'this partner');
    await redis.restart();
    await expectSharedAgain(ingest);

    await redis.signal('SIGKILL');
    await expectServed(ingest, 40);
    await expectLocalLimit(ingest, '192.0.4.3', 5);
    await redis.restart();
    await expectSharedAgain(ingest);

    await redis.signal('SIGSTOP');
    await expectServed(ingest, 40);
    await expectLocalLimit(ingest, '192.0.4.5', 5);
    await redis.signal('SIGCONT');
    // Only the request that found it hung waited for it.
    expect(await askedOf(redis)).toBeLessThanOrEqual(1);
    await expectSharedAgain(ingest);
    expect(await world.metric(ingest, 'partner_ingest_requests_total', { status: '500' })).toBe(0);
  });

  test('hung under many requests at once nobody waits long, and none fails', async () => {
    const ingest = await startIngest({ REDIS_URL: redis.url });
    expect((await post(ingest, '192.0.5.1')).status).toBe(202);
    await redis.signal('SIGSTOP');
    const startedAt = performance.now();
    const posts = Array.from({ length: 100 }, (_, index) => post(ingest, `192.0.5.${index}`));
    const answers = await withDeadline(Promise.all(posts), HANG_MS, 'serving without Redis');
    console.log(`100 at once with a hung Redis: ${Math.round(performance.now() - startedAt)} ms`);
    // All are answered while Redis still hangs, so nobody waited for it.
    expect(new Set(answers.map((answer) => answer.status))).toEqual(new Set([202]));
    expect(await world.metric(ingest, FALLBACK)).toBe(1);
    await redis.signal('SIGCONT');
    await expectSharedAgain(ingest);
  });
});
