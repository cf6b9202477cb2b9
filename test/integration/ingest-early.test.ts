/**
 * Answers that are certain before the body has come: they do not wait for it, and no reset destroys
 * them.
 */
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { startIngest } from '../../cmd/ingest/wire.ts';
import {
  MAX_CONNECTIONS_PER_ADDRESS,
  REFUSALS_PER_SECOND,
  REFUSAL_BURST,
} from '../../internal/ingest/limits.ts';
import { Closers } from '../../internal/platform/closers.ts';
import { createLogger } from '../../internal/platform/log.ts';
import { loadConfig } from '../../internal/settings/settings.ts';
import { createRegistry } from '../../internal/telemetry/registry.ts';
import { openCrowd } from '../support/crowd.ts';
import {
  bodies,
  expectAnswer,
  expectRecord,
  head,
  openRaw,
  rawAnswer,
  type RawConnection,
} from '../support/ingest.ts';
import { INGEST_PATH, send, type Answer } from '../support/http.ts';
import { eventually } from '../support/wait.ts';
import { NO_REDIS, openWorld, type InProcess, type World } from '../support/world.ts';

/** Far below the time-outs of bodies, far above what an answer takes. */
const AT_ONCE_MS = 4_000;
let world: World;
let ingest: InProcess;
/** Has served the one request it allows to an address. */
let limited: InProcess;

beforeAll(async () => {
  world = await openWorld();
  [ingest, limited] = await Promise.all([
    world.start('ingest', { STATUS_ENDPOINT: 'true' }),
    // Counted in this process alone and in one window: however slow the machine, the next one is
    // over the limit.
    world.start('ingest', {
      RATE_LIMIT_MAX: '1',
      RATE_LIMIT_WINDOW_SECONDS: '3600',
      REDIS_URL: NO_REDIS,
    }),
  ]);
  expect((await send(limited.url, { key: world.key, body: '{}' })).status).toBe(202);
});
afterAll(() => world.close());

type Target = () => InProcess;
const cases: [status: number, target: Target, lines: () => string[]][] = [
  [401, () => ingest, () => []],
  [401, () => ingest, () => ['Authorization: Bearer guess']],
  [403, () => ingest, () => [`Authorization: Bearer ${world.inactiveKey}`]],
  [429, () => limited, () => [`Authorization: Bearer ${world.key}`]],
];

/**
 * Writes `bytes` and gives the answer that comes at once, on a connection that is still open for
 * more.
 */
async function answerAtOnce(target: InProcess, bytes: string): Promise<[Answer, RawConnection]> {
  const connection = await openRaw(target.url);
  connection.write(bytes);
  return [await connection.answer(AT_ONCE_MS), connection];
}

describe('a body that has not come', () => {
  test.each(cases)(
    'a %d does not wait for it, and what comes later is read and dropped',
    async (status, target, lines) => {
      const [answer, connection] = await answerAtOnce(
        target(),
        head([...lines(), 'Content-Length: 60000']),
      );
      expect(answer.status).toBe(status);
      expect(answer.headers['connection']).toBe('close');
      let reset: unknown;
      connection.socket.on('error', (error) => (reset = error));
      connection.write('x'.repeat(60_000));
      await connection.closed();
      expect(reset).toBeUndefined();
      expect(connection.text().match(/HTTP\/1\.1 /g)).toHaveLength(1);
    },
  );

  test('what follows it on its connection is no request any more', async () => {
    const userAgent = 'behind-a-close';
    const [answer, connection] = await answerAtOnce(ingest, head(['Content-Length: 10']));
    expect(answer.status).toBe(401);
    const next = head([
      `Authorization: Bearer ${world.key}`,
      `User-Agent: ${userAgent}`,
      'Content-Length: 2',
    ]);
    connection.write(`${'x'.repeat(10)}${next}{}`);
    await connection.closed();
    expect(connection.text().match(/HTTP\/1\.1 /g)).toHaveLength(1);
    expect(await world.records({ userAgent })).toEqual([]);
  });

  test('one that never comes holds the connection for a bounded time only', async () => {
    const [, connection] = await answerAtOnce(ingest, head(['Content-Length: 10']));
    await connection.closed();
  });
});

describe('Expect: 100-continue', () => {
  const expecting = (lines: readonly string[], length: number): string =>
    head([...lines, `Content-Length: ${length}`, 'Expect: 100-continue']);

  test.each(cases)('a %d is the only answer, without a 100', async (status, target, lines) => {
    const [answer, connection] = await answerAtOnce(target(), expecting(lines(), 100));
    expect(answer.status).toBe(status);
    expect(answer.headers['connection']).toBe('close');
    expect(connection.text()).not.toContain('100 Continue');
    connection.socket.destroy();
  });

  test('a wanted body is asked for before it has come, and then read', async () => {
    const connection = await openRaw(ingest.url);
    connection.write(expecting([`Authorization: Bearer ${world.key}`], 2));
    await eventually('the 100', () => connection.text() === 'HTTP/1.1 100 Continue\r\n\r\n');
    connection.write('{}');
    expectAnswer(await connection.answer(), 202, bodies.accepted);
    connection.socket.destroy();
  });

  test('a length beyond the bound is a 400 without a 100, on record without a body', async () => {
    for (const length of [65_001, 20_000_000]) {
      const [answer, connection] = await answerAtOnce(
        ingest,
        expecting([`Authorization: Bearer ${world.key}`], length),
      );
      expect(connection.text()).not.toContain('100 Continue');
      const id = expectAnswer(answer, 400, bodies.tooLarge);
      await expectRecord(world, id, {
        state: 'malformed',
        httpStatus: 400,
        partnerId: 'demo',
        bytes: Buffer.alloc(0),
      });
      connection.socket.destroy();
    }
  });
});

test('a body beyond 16 MiB gets its 400, and no reset destroys it', async () => {
  const connection = await openRaw(ingest.url);
  connection.write(head([`Authorization: Bearer ${world.key}`, 'Content-Length: 40000000']));
  // Not read meanwhile, as by a client that reads once it has sent.
  connection.socket.pause();
  connection.write(Buffer.alloc(18_000_000, 'x'));
  connection.socket.resume();
  expectAnswer(await connection.answer(), 400, bodies.tooLarge);
  connection.socket.destroy();
});

test('CONNECT is a 405 in our words, counted', async () => {
  const count = (): Promise<number> =>
    world.metric(ingest, 'partner_ingest_requests_total', { status: '405' });
  const before = await count();
  for (const target of ['other.test:443', INGEST_PATH]) {
    const answer = await rawAnswer(
      ingest.url,
      `CONNECT ${target} HTTP/1.1\r\nHost: other.test:443\r\n\r\n`,
    );
    expectAnswer(answer, 405, bodies.methodNotAllowed);
    expect(answer.headers).toMatchObject({
      allow: 'POST',
      connection: 'close',
      date: expect.any(String),
    });
  }
  expect(await count()).toBe(before + 2);
});

describe('before the keys are loaded', () => {
  test('it is a 500 that says when to ask again, a 503 for look-ups, and never a 401', async () => {
    // It is never ready, so the world would wait for it in vain.
    const closers = new Closers(createLogger('test', 'silent'));
    const environment = {
      ...world.environment,
      MONGODB_URI: 'mongodb://127.0.0.1:1',
      STATUS_ENDPOINT: 'true',
    };
    const tools = {
      log: createLogger('test', 'silent'),
      closers,
      registry: createRegistry('ingest'),
    };
    const away = {
      ...(await startIngest(loadConfig('ingest', environment), tools)),
      close: () => closers.closeAll(),
    };
    for (const key of [world.key, 'guess', '']) {
      const options = key === '' ? {} : { key };
      const answer = await send(away.url, { ...options, body: '{}' });
      expectAnswer(answer, 500, bodies.internal);
      expect(answer.headers['retry-after']).toMatch(/^[1-9]\d*$/);
      const path = `${INGEST_PATH}/req_01m7yefdj3fantjpk5mzvj8mwh`;
      const status = await send(away.url, { ...options, method: 'GET', path });
      expect(status.status).toBe(503);
      expect(status.headers['retry-after']).toMatch(/^[1-9]\d*$/);
    }
    expect(
      await world.metric(away, 'partner_ingest_not_accepted_total', { reason: 'keys_not_loaded' }),
    ).toBe(3);
    await away.close();
  });
});

test('a flood of refusals is recorded up to a bound and counted beyond it, with nothing left out', async () => {
  const flooded = await world.start('ingest', { TRUSTED_PROXIES: '127.0.0.0/8' });
  const startedAt = performance.now();
  const address = '192.0.2.99';
  for (let round = 0; round < 10; round += 1) {
    await Promise.all(
      Array.from({ length: 50 }, async () => {
        const answer = await send(flooded.url, {
          key: 'guess',
          body: '{}',
          headers: { 'x-forwarded-for': address },
        });
        expect(answer.status).toBe(401);
      }),
    );
  }
  const bound =
    REFUSAL_BURST + Math.ceil(((performance.now() - startedAt) / 1_000) * REFUSALS_PER_SECOND) + 1;
  const counted = await eventually('all to be kept', async () => {
    const counts = (await world.rateLimited()).filter((record) => record.address === address);
    const sum = counts.reduce((total, { count }) => total + count, 0);
    return (await world.records({ remoteIp: address })).length + sum === 500 && counts;
  });
  expect((await world.records({ remoteIp: address })).length).toBeLessThanOrEqual(bound);
  for (const record of counted) {
    expect(record).toMatchObject({
      _id: `${address} 401 ${record.windowStart.toISOString()}`,
      status: 401,
    });
    expect(record.windowStart.getTime() % 60_000).toBe(0);
    expect(record.expiresAt.getTime()).toBe(record.windowStart.getTime() + 7 * 86_400_000);
    expect(record.requestIds.length).toBe(Math.min(20, record.count));
  }
  await flooded.close();
});

describe('connections', () => {
  const crowdFrom = (target: InProcess, count: number) =>
    openCrowd({
      url: target.url,
      count,
      from: () => '127.0.0.77',
      // Answered and kept open: one that says nothing would be closed after ten seconds.
      begin: (socket) => socket.write(head([], 'GET / HTTP/1.1')),
    });
  const refused = (target: InProcess): Promise<number> =>
    world.metric(target, 'partner_ingest_broken_http_total', { kind: 'too_many_from_address' });

  test('one address may have a number of connections; more are closed at once, and others are served', async () => {
    const crowd = await crowdFrom(ingest, MAX_CONNECTIONS_PER_ADDRESS + 20);
    await eventually('the surplus to be closed', () => crowd.ended.get('') === 20);
    expect(crowd.open).toBe(MAX_CONNECTIONS_PER_ADDRESS);
    expect(await refused(ingest)).toBe(20);
    expect((await send(ingest.url, { key: world.key, body: '{}' })).status).toBe(202);
    crowd.destroy();
    await eventually('room for the address again', async () => {
      const again = await crowdFrom(ingest, 1);
      again.destroy();
      return !again.ended.has('');
    });
  });

  test('a trusted proxy may have as many as it takes', async () => {
    const behind = await world.start('ingest', { TRUSTED_PROXIES: '10.0.0.0/8, 127.0.0.77, ::1' });
    const crowd = await crowdFrom(behind, MAX_CONNECTIONS_PER_ADDRESS + 20);
    expect((await send(behind.url, { key: world.key, body: '{}' })).status).toBe(202);
    expect(crowd.open).toBe(MAX_CONNECTIONS_PER_ADDRESS + 20);
    expect(await refused(behind)).toBe(0);
    crowd.destroy();
    await behind.close();
  });
});
