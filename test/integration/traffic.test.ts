/** Stored counts of requests: each once, by two writers, with a store in doubt, in constant time. */
import { afterAll, beforeEach, expect, test } from '@jest/globals';
import { MongoClient, type Document } from 'mongodb';
import { DAY_MS, type Clock } from '../../internal/platform/process/clock.ts';
import type { Loop, LoopOptions } from '../../internal/platform/process/loop.ts';
import {
  EVERYBODY,
  HOUR_MS,
  MINUTE_MS,
  trafficCollection,
} from '../../internal/traffic/traffic.ts';
import { TrafficCounter } from '../../internal/traffic/traffic-counter.ts';
import { sumOf, TrafficReader } from '../../internal/traffic/traffic-reader.ts';
import { startMongoWire } from '../support/mongo-wire.ts';
import { storesOfFile } from '../support/test-stores.ts';

const START = Date.parse('2026-11-28T12:30:30Z');

const { db, mongodbUri, database } = await storesOfFile();
const wire = await startMongoWire(mongodbUri);
const client = new MongoClient(wire.url);
afterAll(async () => {
  await client.close();
  await wire.close();
});

const time = { ms: START };
const clock: Clock = { now: () => new Date(time.ms), monotonicMs: () => time.ms - START };
const reader = new TrafficReader(db);

beforeEach(async () => {
  time.ms = START;
  wire.answer(() => undefined);
  wire.instead(() => undefined);
  wire.hold(() => false);
  await trafficCollection(db).deleteMany({});
});

/** A process whose rounds the test calls. */
function processOf(over = db, limits = { rowsMax: 1_000, writeWithinMs: 5_000 }) {
  let round: (() => Promise<unknown>) | undefined;
  const loops = {
    start: (options: LoopOptions) => {
      round = () => options.run(new AbortController().signal);
      return { stop: () => Promise.resolve() } as unknown as Loop;
    },
  };
  const counter = new TrafficCounter({ db: over, clock, loops }, limits);
  return { counter, flush: () => round!() };
}
const viaWire = (limits?: Parameters<typeof processOf>[1]) =>
  processOf(client.db(database), limits);

const sums = async (owner: string, unit: 'minute' | 'hour' | 'day' = 'minute') => {
  const asked = { unit, since: new Date(time.ms - 2 * DAY_MS), until: new Date(time.ms + 1) };
  return sumOf((await reader.series(owner, asked)).map(({ counts }) => counts));
};
const accepted = async (owner: string): Promise<number> =>
  (await sums(owner)).answers?.['202'] ?? 0;
const isWrite = (command: Document): boolean => command['update'] === 'traffic';
const ended = { receivedAt: new Date(START - 5 * MINUTE_MS), history: [{ state: 'recorded' }] };

test('minutes, hours and days say the same of a partner, of its tests apart, and of all', async () => {
  const [ingest, processor] = [processOf(), processOf()];
  for (const ms of [0.5, 12, 9_000]) ingest.counter.answered('demo', 'answers', 202, ms);
  ingest.counter.answered('demo', 'answers', 'replayed');
  ingest.counter.answered('demo', 'reads', 404);
  ingest.counter.answered('demo test', 'answers', 202, 3);
  ingest.counter.answered('', 'answers', 401);
  processor.counter.ended('demo', ended, 'rejected', [
    { field: 'ein', code: 'invalid_format' },
    { field: 'email', code: 'missing' },
    { field: 'email', code: 'missing' },
  ]);
  processor.counter.mailed('demo', 'accepted');
  await Promise.all([ingest.counter.close(), processor.counter.close()]);
  const mine = {
    answers: { '202': 3, replayed: 1 },
    reads: { '404': 1 },
    accept: { '1': 1, '15': 1, more: 1 },
    ends: { rejected: 1 },
    reasons: { rejected: { 'ein invalid_format': 1, 'email missing': 1 } },
    finished: { rejected: 1 },
    mails: { accepted: 1 },
  };
  for (const unit of ['minute', 'hour', 'day'] as const) {
    expect(await sums('demo', unit)).toEqual(mine);
    expect(await sums('demo test', unit)).toEqual({ answers: { '202': 1 }, accept: { '5': 1 } });
    expect(await sums(EVERYBODY, unit)).toEqual({
      ...mine,
      answers: { ...mine.answers, '401': 1 },
    });
  }
  // An end counts in the minute in which its request came.
  const minutes = { unit: 'minute', since: ended.receivedAt, until: clock.now() } as const;
  const [first, ...others] = await reader.series('demo', minutes);
  expect(first).toEqual({
    at: new Date('2026-11-28T12:25:00Z'),
    counts: { ends: mine.ends, reasons: mine.reasons },
  });
  expect(others.at(-1)?.counts.finished).toEqual({ rejected: 1 });
  const documents = await trafficCollection(db).find().toArray();
  expect(documents.map(({ _id }) => _id).toSorted()).toEqual([
    'day 2026-11-28 *',
    'day 2026-11-28 demo',
    'day 2026-11-28 demo test',
    'hour 2026-11-28T12 *',
    'hour 2026-11-28T12 demo',
    'hour 2026-11-28T12 demo test',
    'sums 2026-11-28T12 3',
  ]);
  expect(await reader.partners(clock.now())).toEqual(
    new Map([['demo', { requests: 4, failed: 1 }]]),
  );
  const kept = documents.map(({ _id, expiresAt }) => [
    _id.slice(0, 4),
    _id.endsWith('test'),
    expiresAt.toISOString().slice(0, 10),
  ]);
  expect(new Set(kept.map(String))).toEqual(
    new Set([
      'hour,false,2026-12-06',
      'hour,true,2026-12-06',
      'day ,false,2028-01-03',
      'day ,true,2026-12-07',
      'sums,false,2026-11-29',
    ]),
  );
});

test('of what waits, the highest level of each minute and hour counts, also where another leads', async () => {
  const [first, next] = [processOf(), processOf()];
  for (const waiting of [3, 9, 4]) first.counter.waiting('recorded', waiting);
  next.counter.waiting('recorded', 7);
  await Promise.all([first.counter.close(), next.counter.close()]);
  for (const unit of ['minute', 'hour', 'day'] as const)
    expect(await sums(EVERYBODY, unit)).toEqual({ waits: { recorded: 9 } });
});

test('a request that is ended again counts by its last end', async () => {
  const { counter } = processOf();
  const twice = (...states: string[]) => ({
    ...ended,
    history: states.map((state) => ({ state })),
  });
  counter.ended('demo', ended, 'dead_lettered', [{ code: 'transient' }]);
  counter.ended('demo', twice('recorded', 'dead_lettered', 'recorded'), 'completed');
  counter.ended(
    'demo',
    twice('recorded', 'completed', 'undeliverable', 'account_created'),
    'completed',
  );
  await counter.close();
  expect(await sums('demo')).toMatchObject({
    ends: { dead_lettered: 0, completed: 1 },
    finished: { dead_lettered: 1, completed: 2 },
  });
});

test.each(['before the write', 'after the write', 'long after the next write'])(
  'a write whose answer is lost counts once: it reaches the store %s',
  async (when) => {
    const { counter, flush } = viaWire({ rowsMax: 1_000, writeWithinMs: 500 });
    await flush();
    counter.answered('demo', 'answers', 202, 1);
    const held = wire.hold(isWrite);
    const lost = flush();
    await expect(lost).rejects.toThrow(/took longer/);
    wire.hold(() => false);
    expect(held).toHaveLength(1);
    if (when === 'before the write') await held[0]!();
    counter.answered('demo', 'answers', 202, 1);
    await flush();
    if (when === 'after the write') await held[0]!();
    counter.answered('demo', 'answers', 202, 1);
    await flush();
    if (when === 'long after the next write') await held[0]!();
    await counter.close();
    expect(await accepted('demo')).toBe(3);
    expect(await accepted(EVERYBODY)).toBe(3);
  },
  30_000,
);

test('a majority that does not answer in time counts once', async () => {
  const { counter, flush } = viaWire();
  counter.answered('demo', 'answers', 202, 1);
  wire.answer((command, reply) =>
    isWrite(command)
      ? {
          ...reply,
          writeConcernError: { code: 64, codeName: 'WriteConcernTimeout', errmsg: 'played' },
        }
      : undefined,
  );
  await expect(flush()).rejects.toThrow(/majority/);
  await expect(flush()).rejects.toThrow(/majority/);
  wire.answer(() => undefined);
  await counter.close();
  expect(await accepted('demo')).toBe(1);
});

test('many writers begin the same documents at once, in any order, and none loses a count', async () => {
  const writers = Array.from({ length: 8 }, () => processOf());
  for (let round = 0; round < 5; round += 1) {
    time.ms += HOUR_MS / 2;
    for (const [index, { counter }] of writers.entries())
      for (let partner = 0; partner < 30; partner += 1)
        counter.answered(`p${(partner * (index + 1)) % 31}`, 'answers', 202, 1);
    await Promise.all(writers.map(({ flush }) => flush()));
  }
  expect(await accepted(EVERYBODY)).toBe(8 * 5 * 30);
  const documents = await trafficCollection(db).find().toArray();
  expect(Object.keys(documents[0]!.writes)).toHaveLength(8);
});

test('an update that the store refuses by itself stops no other, and is told as lost', async () => {
  const { counter, flush } = viaWire();
  counter.answered('bad', 'answers', 202);
  counter.answered('good', 'answers', 202);
  wire.answer((command, reply) => {
    if (!isWrite(command)) return undefined;
    const index = (command['updates'] as Document[]).findIndex(({ q }) => q._id.endsWith(' bad'));
    return index === -1 ? undefined : { ...reply, writeErrors: [{ index, code: 2, errmsg: 'no' }] };
  });
  for (let round = 0; round < 5; round += 1) await expect(flush()).rejects.toThrow('no');
  counter.answered('good', 'answers', 202);
  await counter.close();
  expect(await accepted('good')).toBe(2);
  expect((await sums(EVERYBODY)).lost).toBeGreaterThan(0);
});

test('a clock that steps counts in the minute that it shows', async () => {
  const { counter, flush } = processOf();
  counter.answered('demo', 'answers', 202);
  await flush();
  time.ms -= HOUR_MS;
  counter.answered('demo', 'answers', 202);
  await flush();
  const at = async (ms: number) => {
    const asked = { unit: 'minute', since: new Date(ms), until: new Date(ms + 1) } as const;
    return (await reader.series('demo', asked))[0]?.counts.answers;
  };
  expect([await at(START), await at(START - HOUR_MS)]).toEqual([{ '202': 1 }, { '202': 1 }]);
});

test('what waits for an absent store has a bound, beyond which only all are counted', async () => {
  const { counter, flush } = viaWire();
  wire.instead((command) =>
    isWrite(command) ? { ok: 0, code: 11_600, errmsg: 'away' } : undefined,
  );
  const partners = 500;
  for (let minute = 0; minute < 3; minute += 1) {
    for (let partner = 0; partner < partners; partner += 1)
      counter.answered(`p${partner}`, 'answers', 202, 1);
    time.ms += MINUTE_MS;
  }
  for (let code = 0; code < 1_000; code += 1) counter.ended('p1', ended, `s${code}.$x`, []);
  await expect(flush()).rejects.toThrow('away');
  wire.instead(() => undefined);
  await counter.close();
  expect(await accepted(EVERYBODY)).toBe(3 * partners);
  const { lost = 0 } = await sums(EVERYBODY);
  expect(lost).toBeGreaterThanOrEqual(partners);
  expect(await accepted('p1')).toBe(2);
});

test('partners of an hour are read by 16 documents, however many they are', async () => {
  const { counter, flush } = processOf(db, { rowsMax: 20_000, writeWithinMs: 5_000 });
  const partners = 2_000;
  const reads: Document[] = [];
  const overWire = new TrafficReader(client.db(database));
  for (const hour of [0, 1, 2]) {
    for (let index = 0; index < partners; index += 1)
      counter.answered(`p.${index}`, 'answers', hour === 0 ? 500 : 202, 1);
    counter.ended('p.7', { receivedAt: clock.now(), history: [] }, 'rejected');
    await flush();
    time.ms += HOUR_MS;
  }
  time.ms -= HOUR_MS;
  wire.instead((command) => {
    if (command['find'] ?? command['aggregate'] ?? command['getMore']) reads.push(command);
    return undefined;
  });
  const all = await overWire.partners(clock.now());
  expect(all.size).toBe(partners);
  expect([all.get('p.7'), all.get('p.8')]).toEqual([
    { requests: 2, failed: 2 },
    { requests: 2, failed: 0 },
  ]);
  // Those of the list of partners are of a day.
  expect((await overWire.partners(clock.now(), 24)).get('p.8')).toEqual({ requests: 3, failed: 1 });
  const read = reads.filter((one) => one['aggregate'] === 'traffic');
  expect(read.map(({ pipeline }) => pipeline[0].$match._id.$in.length)).toEqual([32, 384]);
  expect(reads.length).toBeLessThan(10);
});
