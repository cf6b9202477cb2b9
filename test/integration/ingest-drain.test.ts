/** Signals, exit codes and failed starts of ingest, and a log that nobody reads. */
import { afterAll, afterEach, describe, expect, test } from '@jest/globals';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { startService, type ServiceProcess } from '../../deploy/local/processes.ts';
import { withDeadline } from '../../internal/platform/process/deadline.ts';
import { bodies, expectAnswer, head, openRaw, type RawConnection } from '../support/ingest.ts';
import { readinessOf, send } from '../support/http.ts';
import { listen } from '../support/listen.ts';
import { startReplicaSet } from '../support/replica-set/replica-set.ts';
import { eventually, HANG_MS } from '../support/wait.ts';
import { newApplication, worldOf } from '../support/world.ts';

const { world } = await worldOf();
const set = await startReplicaSet(world.stores.mongodbUri);
afterEach(() => set.resumeMajority());
afterAll(() => set.close());

/** A request whose body has begun and waits for its end. */
async function beginRequest(ingest: ServiceProcess): Promise<RawConnection> {
  const connection = await openRaw(ingest.url);
  connection.write(`${head([`Authorization: Bearer ${world.key}`, 'Content-Length: 7'])}{"a"`);
  await eventually(
    'the request to be under way',
    async () => (await world.metric(ingest, 'partner_ingest_limiter_decisions_total')) > 0,
  );
  return connection;
}

const draining = (ingest: ServiceProcess): Promise<unknown> =>
  eventually('readiness to say so', async () => {
    const response = await fetch(`${ingest.adminUrl}/readyz`);
    return response.status === 503 && (await response.text()).includes('draining');
  });

describe('a signal', () => {
  test('finishes what is in flight, says Connection: close, and exits 0', async () => {
    const ingest = await world.spawn('ingest');
    const silent = await openRaw(ingest.url);
    const halfHead = await openRaw(ingest.url);
    halfHead.write('POST /api');
    const connection = await beginRequest(ingest);
    ingest.child.kill('SIGTERM');
    await draining(ingest);
    await Promise.all([silent.closed(), halfHead.closed()]);
    await eventually('new connections to be refused', () =>
      send(ingest.url, { key: world.key, body: '{}' }).then(
        () => false,
        () => true,
      ),
    );
    connection.write(':1}');
    const answer = await connection.answer();
    const id = expectAnswer(answer, 202, bodies.accepted);
    expect(answer.headers['connection']).toBe('close');
    await connection.closed();
    expect(await ingest.exited).toEqual({ code: 0, signal: null });
    expect((await world.record(id))?.state).toBe('recorded');
  });

  test('a second one leaves at once with 130', async () => {
    const ingest = await world.spawn('ingest');
    const connection = await beginRequest(ingest);
    ingest.child.kill('SIGTERM');
    await draining(ingest);
    ingest.child.kill('SIGTERM');
    expect(await ingest.exited).toEqual({ code: 130, signal: null });
    await connection.closed();
    expect(connection.text()).toBe('');
  });
});

test.each([
  ['waits until a majority has them', true],
  ['ends without a majority, and logs each', false],
])('a drain with pending withdrawals %s', async (_name, back) => {
  const uri = (await set.door()).url;
  const ingest = await world.spawn('ingest', { MONGODB_URI: uri, ACCEPT_TIMEOUT_MS: '1000' });
  set.stallMajority();
  const answer = await send(ingest.url, { key: world.key, body: '{"a":1}' });
  const id = expectAnswer(answer, 500, bodies.internal);
  await world.recordIn('withdrawn', id);
  ingest.child.kill('SIGTERM');
  await draining(ingest);
  expect(await world.metric(ingest, 'partner_ingest_withdrawals_pending')).toBe(1);
  if (back) set.resumeMajority();
  expect(await ingest.exited).toEqual({ code: 0, signal: null });
  const told = ingest.lines.filter((line) => line.includes('withdrawal abandoned'));
  expect(told).toEqual(back ? [] : [expect.stringContaining(id)]);
  expect((await world.record(id))?.state).toBe('withdrawn');
});

test.each(['HTTP_PORT', 'ADMIN_PORT'])(
  'a start that cannot succeed exits 1, as when the port of %s is in use',
  async (name) => {
    const taken = createServer();
    const port = String(await listen(taken));
    await expect(
      startService('ingest', { ...world.environment, LOG_LEVEL: 'info', [name]: port }),
    ).rejects.toThrow(/ended while starting \(1\)[^]*EADDRINUSE/);
    taken.close();
  },
);

/** Their log lines exceed what the pipe can hold. */
const UNREAD_REQUESTS = 8_000;

test('an ingest whose log nobody reads accepts requests, and ends on SIGTERM', async () => {
  const { child, url, adminUrl } = await world.spawn('ingest', { LOG_LEVEL: 'debug' });
  const exited = once(child, 'exit');
  child.stdout.pause();
  try {
    const statuses = new Set<number>();
    const sendAll = async (): Promise<void> => {
      for (let sent = 0; sent < UNREAD_REQUESTS / 10; sent += 1) {
        const body = JSON.stringify(newApplication());
        statuses.add((await send(url, { key: world.key, body })).status);
      }
    };
    await Promise.all(Array.from({ length: 10 }, sendAll));
    expect([...statuses]).toEqual([202]);
    const told = String((await readinessOf({ adminUrl })).warnings);
    expect(told).toMatch(/nobody reads the log: \d+ lines dropped/);
    const dropped = await world.metric({ adminUrl }, 'partner_ingest_log_lines_dropped_total');
    expect(dropped).toBeGreaterThan(0);
    child.kill('SIGTERM');
    expect(await withDeadline(exited, HANG_MS, 'its end')).toEqual([0, null]);
  } finally {
    child.stdout.resume();
  }
});
