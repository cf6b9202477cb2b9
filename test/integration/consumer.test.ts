/**
 * The loop that takes hints from Redis: what is in hand has left Redis, and a process with hints in
 * hand is alive.
 */
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { systemClock } from '../../internal/platform/clock.ts';
import { createLogger } from '../../internal/platform/log.ts';
import { Consumer } from '../../internal/queue/consume.ts';
import { HintSender } from '../../internal/queue/enqueue.ts';
import { HintsInHand } from '../../internal/queue/hints-in-hand.ts';
import type { Hint } from '../../internal/queue/job.ts';
import { newTestClock } from '../support/processor-records.ts';
import { openTestStores, type TestStores } from '../support/test-stores.ts';
import { eventually, HEAL_HANG_MS } from '../support/wait.ts';

const SLOTS = 16;
const DEADLINE_MS = 60_000;
const log = createLogger('test', 'silent');

let stores: TestStores;
let sender: HintSender;
const consumers: Consumer[] = [];
const ends: (() => void)[] = [];
/**
 * From the end of a test on no work waits: what a slot that was freed begins would be among the
 * next test's.
 */
let over = false;

beforeEach(async () => {
  over = false;
  stores = await openTestStores();
  sender = new HintSender({ redisUrl: stores.redisUrl, clock: systemClock, log });
  await eventually('Redis to answer', () => sender.ready);
});
afterEach(async () => {
  over = true;
  for (const end of ends.splice(0)) end();
  await Promise.all(consumers.splice(0).map((consumer) => consumer.close()));
  await sender.close();
  await stores.close();
});

const hint = (id: number): Hint => ({ requestId: `req_${id}`, version: 0 });

/**
 * Sends many hints. On a busy machine Redis may be too slow for the sender: then they are sent once
 * more.
 */
const sendMany = (hints: readonly Hint[]) =>
  eventually('the hints to be sent', async () => {
    await sender.send(hints);
    return true;
  });

/** A consumer whose work ends when the test does. */
function scene() {
  const begun: string[] = [];
  const clock = newTestClock();
  const sentBack: Hint[] = [];
  const work = new HintsInHand({
    slots: SLOTS,
    handle: ({ requestId }) => {
      begun.push(requestId);
      return over ? Promise.resolve() : new Promise((resolve) => ends.push(resolve));
    },
  });
  const consumer = new Consumer({
    closeDeadlineMs: 10_000,
    work,
    redis: sender.redis,
    clock,
    log,
    sendBack: async (left) => void sentBack.push(...left),
  });
  consumers.push(consumer);
  return { begun, clock, work, consumer, sentBack };
}

test('sixteen slow hand-overs and a job that waits are life, for as long as it takes', async () => {
  const { begun, clock, consumer, work } = scene();
  for (let id = 0; id <= SLOTS; id += 1) await sender.send([hint(id)]);
  await eventually('all slots to be busy', () => work.count === SLOTS);
  expect(begun).toHaveLength(SLOTS);
  clock.advance(20 * DEADLINE_MS);
  expect(consumer.faults(DEADLINE_MS)).toEqual([]);
  ends.shift()?.();
  // A fetch whose answer is late leaves the job locked: it comes back when its lock has run out.
  await eventually('the last one to be begun', () => begun.length === SLOTS + 1, HEAL_HANG_MS);
  expect(await sender.counts()).toMatchObject({ waiting: 0, active: 0 });
});

test('an idle loop turns; one that does not for a minute is not live', async () => {
  const { clock, consumer } = scene();
  await eventually('the loop to turn', () => consumer.faults(0).length > 0);
  clock.advance(DEADLINE_MS);
  expect(consumer.faults(DEADLINE_MS)).toEqual([
    'the worker has not asked for work for 60 s and has none in hand',
  ]);
  await eventually('the loop to turn again', () => consumer.faults(DEADLINE_MS).length === 0);
});

test('closing takes no more, waits for what was begun, and sends the rest back', async () => {
  const { begun, consumer, sentBack, work } = scene();
  await sendMany(Array.from({ length: 600 }, (_, id) => hint(id)));
  await eventually('more than the slots to be in hand', () => work.count > SLOTS);
  const inHand = work.count;
  let closed = false;
  const closing = consumer.close().then(() => (closed = true));
  await eventually('the slots to be all that is left', () => work.count === SLOTS);
  expect(closed).toBe(false);
  for (const end of ends.splice(0)) end();
  await closing;
  expect(begun).toHaveLength(SLOTS);
  expect(sentBack).toHaveLength(inHand - SLOTS);
  expect((await sender.counts())['waiting']).toBeGreaterThan(0);
});
