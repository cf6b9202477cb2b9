/** Answers that do not wait for the body. */
import { beforeAll, describe, expect, test } from '@jest/globals';
import { startService } from '../../deploy/local/processes.ts';
import { MAX_CONNECTIONS_PER_ADDRESS, REFUSAL_BURST } from '../../internal/ingest/bounds.ts';
import { trafficCollection } from '../../internal/traffic/traffic.ts';
import { openCrowd } from '../support/crowd.ts';
import { bodies, expectAnswer, head, openRaw, type RawConnection } from '../support/ingest.ts';
import { INGEST_PATH, send, type Answer } from '../support/http.ts';
import { startReplicaSet } from '../support/replica-set/replica-set.ts';
import { eventually } from '../support/wait.ts';
import { NO_REDIS, worldOf, type InProcess } from '../support/world.ts';
import { hashApiKey, keyIdOf } from '../../internal/partner/api-key.ts';
import { OVER_LIMIT_ADDRESSES } from '../../internal/submission/over-limit.ts';

const { world, ingest } = await worldOf(['ingest']);
/** Its limit of one request is used up; without Redis one process counts in one window. */
const limited = await world.start('ingest', {
  RATE_LIMIT_MAX: '1',
  RATE_LIMIT_WINDOW_SECONDS: '3600',
  REDIS_URL: NO_REDIS,
});
beforeAll(async () => {
  expect((await send(limited.url, { key: world.key, body: '{}' })).status).toBe(202);
});

/** Returns the answer to what has no body yet; an answer that waited for one would be a 408. */
async function answerAtOnce(target: InProcess, bytes: string): Promise<[Answer, RawConnection]> {
  const connection = await openRaw(target.url);
  connection.write(bytes);
  return [await connection.answer(), connection];
}

test.each<[status: number, target: () => InProcess, key: () => string]>([
  [401, () => ingest, () => 'guess'],
  [403, () => ingest, () => world.inactiveKey],
  [429, () => limited, () => world.key],
])(
  'a %d does not wait for the body, drops it, and reads no request after it',
  async (status, target, key) => {
    const [answer, connection] = await answerAtOnce(
      target(),
      head([`Authorization: Bearer ${key()}`, 'Content-Length: 60000']),
    );
    expect(answer.status).toBe(status);
    expect(answer.headers['connection']).toBe('close');
    let reset: unknown;
    connection.socket.on('error', (error) => (reset = error));
    const userAgent = `behind-a-${status}`;
    const authorized = `Authorization: Bearer ${world.key}`;
    const next = head([authorized, `User-Agent: ${userAgent}`, 'Content-Length: 2']);
    connection.write(`${'x'.repeat(60_000)}${next}{}`);
    await connection.closed();
    expect(reset).toBeUndefined();
    expect(connection.text().match(/HTTP\/1\.1 /g)).toHaveLength(1);
    expect(await world.records({ userAgent })).toEqual([]);
  },
);

describe('Expect: 100-continue', () => {
  const expecting = (key: string, length: number): string =>
    head([`Authorization: Bearer ${key}`, `Content-Length: ${length}`, 'Expect: 100-continue']);

  test('a refusal, or a 400 for the length, is the only answer, without a 100', async () => {
    const [refused, waiting] = await answerAtOnce(ingest, expecting('guess', 100));
    expectAnswer(refused, 401, bodies.keyInvalid);
    expect(refused.headers['connection']).toBe('close');
    const [answer, connection] = await answerAtOnce(ingest, expecting(world.key, 65_001));
    const id = expectAnswer(answer, 400, bodies.tooLarge);
    expect((await world.record(id))?.body?.length()).toBe(0);
    for (const each of [waiting, connection]) {
      expect(each.text()).not.toContain('100 Continue');
      // Ingest waits a bounded time for the body.
      await each.closed();
    }
  });

  test('HTTP/1.0 knows no 100, so none is sent', async () => {
    const connection = await openRaw(ingest.url);
    connection.write(`${expecting(world.key, 2).replace('HTTP/1.1', 'HTTP/1.0')}{}`);
    expectAnswer(await connection.answer(), 202, bodies.accepted);
    await connection.closed();
    expect(connection.text()).not.toContain('100 Continue');
  });

  test('a wanted body is asked for before it has come, and then read', async () => {
    const connection = await openRaw(ingest.url);
    connection.write(expecting(world.key, 2));
    await eventually('the 100', () => connection.text() === 'HTTP/1.1 100 Continue\r\n\r\n');
    connection.write('{}');
    expectAnswer(await connection.answer(), 202, bodies.accepted);
    connection.socket.destroy();
  });
});

test('before the keys are loaded a submission is answered 500 and a look-up 503, never 401', async () => {
  // `world.start` would wait until it is ready, which it never is.
  const away = await startService('ingest', {
    ...world.environment,
    MONGODB_URI: 'mongodb://127.0.0.1:1',
    LOG_LEVEL: 'info',
  });
  try {
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
  } finally {
    await away.stop();
  }
});

test('keys are read only once the controller counts the pod', async () => {
  const set = await startReplicaSet(world.stores.mongodbUri);
  const traffic = trafficCollection(world.stores.db);
  const beats = () => traffic.countDocuments({ _id: /^pod / });
  const before = await beats();
  set.refuse('update', { code: 8000, codeName: 'Held' }, { only: traffic.collectionName });
  const early = await startService('ingest', {
    ...world.environment,
    MONGODB_URI: (await set.door()).url,
    LOG_LEVEL: 'info',
  });
  const ready = () => world.metric(early, 'partner_ingest_ready');
  try {
    await eventually('a second try', () => (set.commands.get('update') ?? 0) > 1);
    expect([await ready(), await beats()]).toEqual([0, before]);
    set.refuse('update');
    await eventually('readiness', async () => (await ready()) === 1);
    expect(await beats()).toBe(before + 1);
  } finally {
    await early.stop();
    await set.close();
  }
});

test('a flood of refusals is recorded up to a bound, then counted by address, then in one count', async () => {
  const flooded = await world.start('ingest', { TRUSTED_PROXIES: '127.0.0.0/8' });
  const [prefix, count] = ['2001:db8:1', REFUSAL_BURST + 3 * OVER_LIMIT_ADDRESSES];
  const guess = (from: number) => {
    const headers = { 'x-forwarded-for': `${prefix}:${from.toString(16)}::1` };
    return send(flooded.url, { key: 'guess', body: '{}', headers });
  };
  for (let from = 0; from < count; from += 50) {
    const guesses = Array.from({ length: 50 }, (_, index) => guess(from + index));
    const answers = await Promise.all(guesses);
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([401]));
  }
  const counts = await eventually('all to be kept', async () => {
    const found = (await world.rateLimited()).filter(
      ({ address }) => address === 'others' || address.startsWith(prefix),
    );
    const sum = found.reduce((total, record) => total + record.count, 0);
    const recorded = await world.records({ remoteIp: { $regex: `^${prefix}` }, state: 'refused' });
    return recorded.length + sum === count && found.length > 0 && found;
  });
  for (const { _id, address, status, windowStart } of counts)
    expect([_id, status]).toEqual([`${address} 401 ${windowStart.toISOString()}`, 401]);
  // Where a new minute has begun, each address has a record in both.
  const windows = new Set(counts.map(({ windowStart }) => windowStart.getTime()));
  expect(counts.length).toBeLessThanOrEqual(windows.size * (OVER_LIMIT_ADDRESSES + 1));
  // Strangers do not hide a partner.
  const remoteIp = '192.0.2.98';
  for (let sent = 0; sent < 2 * REFUSAL_BURST; sent += 50) {
    const headers = { 'x-forwarded-for': remoteIp };
    const options = { key: world.inactiveKey, body: '{}', headers };
    await Promise.all(Array.from({ length: 50 }, () => send(flooded.url, options)));
  }
  const keyId = keyIdOf(hashApiKey(world.inactiveKey));
  await eventually('its key to be counted', async () => {
    const [found] = (await world.rateLimited()).filter(({ address }) => address === remoteIp);
    expect(found).toMatchObject({ status: 403, partnerId: 'dormant', keyId });
    return true;
  });
  await flooded.close();
});

test('connections of one address are bounded, but not those of a trusted proxy', async () => {
  const behind = await world.start('ingest', { TRUSTED_PROXIES: '10.0.0.0/8, 127.0.0.77, ::1' });
  for (const [target, surplus] of [
    [ingest, 20],
    [behind, 0],
  ] as const) {
    const crowd = await openCrowd({
      url: target.url,
      count: MAX_CONNECTIONS_PER_ADDRESS + 20,
      from: () => '127.0.0.77',
      // Sends a request first, because a silent connection is closed after ten seconds.
      begin: (socket) => socket.write(head([], 'GET / HTTP/1.1')),
    });
    await eventually('the surplus to be closed', () => crowd.unanswered === surplus);
    expect(crowd.open).toBe(MAX_CONNECTIONS_PER_ADDRESS + 20 - surplus);
    const labels = { kind: 'too_many_from_address' };
    expect(await world.metric(target, 'partner_ingest_broken_http_total', labels)).toBe(surplus);
    expect((await send(target.url, { key: world.key, body: '{}' })).status).toBe(202);
    crowd.destroy();
  }
});

test('an idle connection is closed without further bytes', async () => {
  const soon = await world.start('ingest', { HTTP_KEEP_ALIVE_SECONDS: '1' });
  const connection = await openRaw(soon.url);
  connection.write(head([], 'GET / HTTP/1.1'));
  expectAnswer(await connection.answer(), 404, bodies.notFound);
  await connection.closed();
  expect(connection.text().match(/HTTP\/1\.1 /g)).toHaveLength(1);
});
