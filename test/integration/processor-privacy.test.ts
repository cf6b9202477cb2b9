/** Nothing personal and no key leaves the record: not in logs at their most talkative, nor in Redis, nor in metrics. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { ServiceProcess } from '../../deploy/local/processes.ts';
import type { SubmissionRecord } from '../../internal/submission/submission.ts';
import { send } from '../support/http.ts';
import { submit } from '../support/processing.ts';
import { eventually } from '../support/wait.ts';
import { openWorld, type World } from '../support/world.ts';

const NAME = 'CanaryName';
const MAILBOX = 'canarymailbox';
const RELAY_PASSWORD = 'canary-relay-password';
const eins = ['918273645', '918273646', '918273647', '918273648', '918273649'] as const;

let world: World;
let processes: ServiceProcess[];
let door: ServiceProcess;
/** Contents of Redis, looked at again and again while the work goes on. */
let redisText = '';
const looking = new AbortController();
let looks: Promise<void>;

beforeAll(async () => {
  world = await openWorld({ controller: false, environment: { LOG_LEVEL: 'trace' } });
  const SMTP_URL = world.mail.smtpUrl.replace('smtp://', `smtp://relay:${RELAY_PASSWORD}@`);
  const loud = { LOG_LEVEL: 'trace', SMTP_URL };
  processes = [
    await world.spawn('controller', loud),
    await world.spawn('ingest', loud),
    await world.spawn('processor', loud),
  ];
  door = processes[1]!;
  looks = (async () => {
    while (!looking.signal.aborted) {
      redisText += await readRedis();
      await new Promise(setImmediate);
    }
  })();
}, 60_000);
afterAll(() => world.close(), 60_000);

async function readRedis(): Promise<string> {
  const { redis } = world.stores;
  const parts: string[] = [];
  for (const key of await redis.keys('*')) {
    const type = await redis.type(key);
    const value =
      type === 'string'
        ? await redis.get(key)
        : type === 'hash'
          ? await redis.hgetall(key)
          : type === 'list'
            ? await redis.lrange(key, 0, -1)
            : type === 'set'
              ? await redis.smembers(key)
              : type === 'zset'
                ? await redis.zrange(key, '0', '-1')
                : type === 'stream'
                  ? await redis.xrange(key, '-', '+')
                  : undefined;
    parts.push(key, JSON.stringify(value) ?? '');
  }
  return parts.join('\n');
}

const fields = (index: number): { email: string; business_name: string; ein: string } => ({
  email: `${MAILBOX}${index}@example.com`,
  business_name: `${NAME} ${index}`,
  ein: eins[index] ?? '',
});

test('completed, rejected, undeliverable, retried, ambiguous, malformed and refused: 0 hits anywhere', async () => {
  const answers = { code: 550, message: `5.1.1 <${MAILBOX}1@example.com> ${NAME} unknown` };
  world.mail.setFault(({ rcptTo }) => {
    const [recipient] = rcptTo;
    if (recipient?.startsWith(`${MAILBOX}1`) === true) return { at: 'rcpt', answer: answers };
    if (recipient?.startsWith(`${MAILBOX}2`) === true) return { at: 'rcpt', answer: { ...answers, code: 450 } };
    if (recipient?.startsWith(`${MAILBOX}3`) === true) return { at: 'data', cut: 'before-store' };
    if (recipient?.startsWith(`${MAILBOX}4`) === true) return { at: 'data', answer: { ...answers, code: 451 } };
    return undefined;
  });
  const ids: string[] = [];
  for (const index of eins.keys()) ids.push(await submit(world, door, fields(index)));
  await world.recordIn('completed', ids[0]!);
  ids.push(await submit(world, door, fields(0)));
  ids.push(await submit(world, door, { ...fields(0), email: `${MAILBOX}@`, ein: `${eins[0]}0` }));
  const malformed = await send(door.url, { key: world.key, body: `["${MAILBOX}5@example.com","${NAME}"` });
  const refused = await send(door.url, { key: world.inactiveKey, body: JSON.stringify(fields(0)) });
  const unknown = await send(door.url, { key: `${world.key}x`, body: JSON.stringify(fields(0)) });
  expect([malformed.status, refused.status, unknown.status]).toEqual([400, 403, 401]);

  const records = await eventually('every first attempt', async () => {
    const found = await world.records({ _id: { $in: ids } });
    const settled = (record: SubmissionRecord): boolean =>
      record.state !== 'recorded' && (record.state !== 'account_created' || record.lastError !== undefined);
    return found.length === ids.length && found.every(settled) ? found : undefined;
  });
  expect(records.map(({ state }) => state).toSorted()).toEqual([
    ...Array.from({ length: 3 }, () => 'account_created'),
    'completed',
    'rejected',
    'rejected',
    'undeliverable',
  ]);
  expect(world.mail.mailsTo(`${MAILBOX}0@example.com`)).toHaveLength(1);

  const metrics = await Promise.all(processes.map(async ({ adminUrl }) => (await fetch(`${adminUrl}/metrics`)).text()));
  looking.abort();
  await looks;
  for (const process of processes.toReversed()) expect(await process.stop()).toBe(0);
  const logs = processes.flatMap(({ lines }) => lines);
  const token = new URL(world.mail.mails[0]?.links[0] ?? '').searchParams.get('token')!;
  const secrets = [NAME, MAILBOX, ...eins, world.key, world.inactiveKey, RELAY_PASSWORD, token];

  // The nets would catch something: they hold what belongs there.
  expect(redisText).toContain(ids[0]);
  expect(logs.join('\n')).toContain('"request_id":"req_');
  expect(metrics.join('\n')).toContain('partner_ingest_outcomes_total');
  const nets = { logs: logs.join('\n'), redis: redisText, metrics: metrics.join('\n') };
  for (const [name, text] of Object.entries(nets)) {
    for (const secret of secrets)
      expect({ name, secret, found: text.includes(secret) }).toEqual({ name, secret, found: false });
  }
  // What support reads of a failure holds none of it either.
  for (const { lastError, history, reasons } of records) {
    for (const secret of secrets) expect(JSON.stringify({ lastError, history, reasons })).not.toContain(secret);
  }
}, 90_000);
