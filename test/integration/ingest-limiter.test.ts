/** The limit of requests per address, shared by processes and kept without Redis. */
import { afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { parse } from 'yaml';
import type { ServiceProcess } from '../../deploy/local/processes.ts';
import { hashApiKey, keyIdOf, newApiKey } from '../../internal/partner/api-key.ts';
import { DAY_MS, later } from '../../internal/platform/process/clock.ts';
import { bodies, expectAnswer } from '../support/ingest.ts';
import { send, type Answer } from '../support/http.ts';
import { read } from '../support/pages.ts';
import { eventually } from '../support/wait.ts';
import { NO_REDIS, worldOf, type InProcess } from '../support/world.ts';

const FALLBACK = 'partner_ingest_limiter_fallback';
const DECISIONS = 'partner_ingest_limiter_decisions_total';
const DRY_RUN = 'partner_ingest_limit_dry_run_total';
const UNTRUSTED = 'partner_ingest_untrusted_forwarded_for_total';
/** A process may count by itself in between, so a test is repeated. */
const ATTEMPTS = 20;
const MAX = 60;
const { world } = await worldOf([], {
  environment: { TRUSTED_PROXIES: '127.0.0.0/8, 10.1.0.0/16' },
});
let children: readonly [ServiceProcess, ServiceProcess];

beforeAll(async () => {
  const limits = { RATE_LIMIT_MAX: String(MAX), RATE_LIMIT_WINDOW_SECONDS: '60' };
  children = await Promise.all([world.spawn('ingest', limits), world.spawn('ingest', limits)]);
});
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
  header = 'x-forwarded-for',
): Promise<Answer> =>
  send(process.url, { ...(key === '' ? {} : { key }), body: '{}', headers: { [header]: address } });

/** Expects the exact 429; returns its request_id. */
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

let addresses = 0;

/** Runs `judge` with a new address, and another one if Redis was slow. */
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

test('two processes together serve up to the limit, and count the rest', () =>
  withSharedCount(children, async (address) => {
    const startedAt = performance.now();
    const served: Answer[] = [];
    for (let round = 0; round < 3; round += 1) {
      const posts = Array.from({ length: 20 }, (_, index) => post(children[index % 2]!, address));
      served.push(...(await Promise.all(posts)));
    }
    for (const answer of served) expectAnswer(answer, 202, bodies.accepted);
    expect(await world.records({ remoteIp: address, state: 'recorded' })).toHaveLength(MAX);

    const over = await post(children[1], address);
    await expectLimited(over, MAX, 60);
    // The window begins with the first request, or later.
    const leastLeft = 60 - (performance.now() - startedAt) / 1_000;
    expect(Number(over.headers['retry-after'])).toBeGreaterThanOrEqual(Math.floor(leastLeft));
    const refused: string[] = [];
    for (let count = 0; count < 25; count += 1)
      refused.push(await expectLimited(await post(children[0], address), MAX, 60));
    expect((await post(children[0], '192.0.6.1')).status).toBe(202);

    const counted = await eventually('the counts of both processes', async () => {
      const found = (await world.rateLimited()).filter((record) => record.address === address);
      return found.reduce((sum, record) => sum + record.count, 0) === 26 && found;
    });
    const keyId = keyIdOf(hashApiKey(world.key));
    for (const record of counted) {
      expect(record).toMatchObject({
        _id: `${address} ${keyId} ${record.windowStart.toISOString()}`,
        partnerId: 'demo',
        keyId,
        limits: [`${MAX} a minute of this address`],
        expiresAt: later(record.windowStart, 7 * DAY_MS),
      });
      expect(record.windowStart.getTime() % 60_000).toBe(0);
      expect(record.requestIds).toHaveLength(record.count);
    }
    expect(counted.flatMap(({ requestIds }) => requestIds)).toEqual(
      expect.arrayContaining(refused),
    );
  }));

/** Makes a partner with these bounds; returns its key once all `processes` know it. */
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

test('the bounds of a partner count over all processes and addresses, for it alone', () =>
  withSharedCount(children, async (address) => {
    const partner = `bounded-${address}`;
    const bounds = {
      'partner-ingest.io/max-per-minute': '19',
      'partner-ingest.io/max-per-minute-dry-run': '5',
    };
    const key = await boundedPartner(partner, bounds, children);
    const sendOne = (index: number, body = '{}'): Promise<Answer> =>
      send(children[index % 2 === 0 ? 0 : 1].url, {
        key,
        body,
        headers: { 'x-forwarded-for': `192.0.8.${index}` },
      });
    for (let index = 0; index < 19; index += 1)
      expect((await sendOne(index, index < 15 ? '[]' : '{}')).status).toBe(index < 15 ? 400 : 202);
    for (const index of [19, 20]) await expectLimited(await sendOne(index), 19, 60, 'this partner');
    expect((await post(children[1], address)).status).toBe(202);
    await eventually('the dry run', async () => {
      const counts = children.map((one) => world.metric(one, DRY_RUN, { partner }));
      return (await Promise.all(counts)).reduce((sum, count) => sum + count) === 21 - 5;
    });

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
  test('the limit applies before authentication, and not to other methods and paths', async () => {
    const ingest = await startIngest({ RATE_LIMIT_MAX: '3' });
    await withSharedCount([ingest], async (address) => {
      const headers = { 'x-forwarded-for': address };
      for (let count = 0; count < 3; count += 1) {
        expect((await send(ingest.url, { method: 'GET', headers })).status).toBe(405);
        expect((await send(ingest.url, { path: '/', headers })).status).toBe(404);
      }
      expectAnswer(await post(ingest, address, ''), 401, bodies.keyMissing);
      expectAnswer(await post(ingest, address, 'guess'), 401, bodies.keyInvalid);
      expectAnswer(await post(ingest, address, world.inactiveKey), 403, bodies.partnerInactive);
      for (const key of ['', 'guess', world.inactiveKey, world.key])
        await expectLimited(await post(ingest, address, key), 3, 60);
    });
    expectAnswer(await post(ingest, '192.0.6.2'), 202, bodies.accepted);
  });

  test('an address is served again in the next window', async () => {
    const ingest = await startIngest({ RATE_LIMIT_MAX: '2', RATE_LIMIT_WINDOW_SECONDS: '1' });
    let limited = false;
    // Three at once, because a busy machine may let a window pass between two.
    await eventually('a 202 after a 429', async () => {
      const limitedBefore = limited;
      const answers = await Promise.all([1, 2, 3].map(() => post(ingest, '192.0.6.3')));
      limited ||= answers.some(({ status }) => status === 429);
      return limitedBefore && answers.some(({ status }) => status === 202);
    });
  });
});

describe('whose address counts', () => {
  interface Where {
    readonly settings?: Readonly<Record<string, string>>;
    readonly header?: string;
    readonly clients?: Readonly<Record<string, string>>;
    readonly doubtful?: readonly string[];
  }
  const wheres = parse(read('test/integration/client-addresses.yaml')) as Record<string, Where>;
  test.each(Object.entries(wheres))('%s the last untrusted address counts', async (_, where) => {
    const { settings = {}, header, clients = {}, doubtful = [] } = where;
    const ingest = await startIngest(settings);
    const addressOf = async (hops: string) => {
      const id = expectAnswer(await post(ingest, hops, world.key, header), 202, bodies.accepted);
      return (await world.record(id))?.remoteIp;
    };
    for (const [hops, client] of Object.entries(clients))
      expect([hops, await addressOf(hops)]).toEqual([hops, client]);
    expect(await world.metric(ingest, UNTRUSTED)).toBe(0);
    // Then the nearest proxy stands for all its clients.
    for (const hops of doubtful) expect(['127.0.0.1', '10.1.0.7']).toContain(await addressOf(hops));
    expect(await world.metric(ingest, UNTRUSTED)).toBe(doubtful.length);
  });

  test('a key bound to networks is used from there through a proxy that writes its port', async () => {
    const behind = await startIngest({});
    const networks = { 'partner-ingest.io/cidrs': '192.0.2.0/24, ::ffff:198.51.100.0/120' };
    const key = await boundedPartner('bound-to-networks', networks, [behind]);
    for (const client of ['192.0.2.7:1', '198.51.100.7'])
      expect((await post(behind, `${client}, 10.1.0.7:443`, key)).status).toBe(202);
    expect((await post(behind, '203.0.113.9, 10.1.0.7:443', key)).status).toBe(401);
  });

  test('without Redis a process counts alone, IPv6 by its /64 or the IPv4 inside, whatever is forged on the left', async () => {
    const ingest = await startIngest({
      RATE_LIMIT_MAX: '1',
      RATE_LIMIT_WINDOW_SECONDS: '3600',
      REDIS_URL: NO_REDIS,
    });
    for (const [first, same, other] of [
      ['2001:db8:0:1::1', '2001:db8:0:1:ffff::2', '2001:db8:0:2::1'],
      ['64:ff9b::192.0.2.32', '::ffff:192.0.2.32', '64:ff9b::192.0.2.33'],
      ['1.1.1.1, 192.0.2.31', '2.2.2.2, 192.0.2.31', '1.1.1.1'],
    ] as const) {
      expect((await post(ingest, first)).status).toBe(202);
      expect((await post(ingest, same)).status).toBe(429);
      expect((await post(ingest, other)).status).toBe(202);
    }
    // With the two of all tests, three processes live at least.
    const bounds = { 'partner-ingest.io/max-per-minute': '60' };
    const key = await boundedPartner('bounded-alone', bounds, [ingest]);
    let served = 0;
    const next = (): Promise<Answer> => post(ingest, `192.0.4.${served}`, key);
    let answer = await next();
    for (; answer.status === 202; answer = await next()) served += 1;
    await expectLimited(answer, 60, 60, 'this partner');
    expect(served).toBeGreaterThan(0);
    expect(served).toBeLessThanOrEqual(20);
  });
});
