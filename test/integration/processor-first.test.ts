/** Of two requests with the same EIN, the one received first is decided first. */
import { afterEach, expect, test } from '@jest/globals';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { PartnerHolds } from '../../internal/partner/flags.ts';
import { later, systemClock as clock } from '../../internal/platform/process/clock.ts';
import type { SubmissionRecord } from '../../internal/submission/submission.ts';
import { submit } from '../support/processing.ts';
import { recordOf } from '../support/records.ts';
import { eventually } from '../support/wait.ts';
import { type InProcess, newApplication, worldOf } from '../support/world.ts';

/** Of one partner; with fair turns, another partner's request is among the first. */
const IN_HAND = 2_000;
/** A chain of waits would take them hours. */
const DUPLICATES = 100;
const AT_ONCE = 50;

const otherKey = newApiKey();
const { world, ingest } = await worldOf(['ingest'], {
  partners: [{ partner: 'other', keys: [otherKey] }],
});
const { requests } = world.stores;
const holds = new PartnerHolds({ db: world.stores.db, clock });

const processors: InProcess[] = [];
async function startProcessors(count: number): Promise<void> {
  const started = Array.from({ length: count }, () => world.start('processor'));
  processors.push(...(await Promise.all(started)));
}

afterEach(async () => {
  await Promise.all(processors.splice(0).map((one) => one.close()));
  await holds.change('demo', false, 'support');
  // What is left in hand does not delay the next test.
  await requests.deleteMany({});
});

const fromDemo = (fields: object) => submit(world, ingest, fields);
const fromOther = (fields: object) => submit(world, ingest, fields, otherKey);

async function fillLine(): Promise<void> {
  const due = { dueAt: clock.now(), firstSeenAt: clock.now() };
  const records = Array.from({ length: IN_HAND }, () =>
    recordOf(newApplication(), clock.now(), due),
  );
  await requests.insertMany(records);
}

const ended = (id: string): Promise<SubmissionRecord> =>
  eventually(`${id} to be decided`, async () => {
    const record = await world.record(id);
    return record?.state === 'recorded' ? undefined : (record ?? undefined);
  });

async function expectWinner(winner: string, loser: string): Promise<void> {
  const [won, lost] = await Promise.all([ended(winner), ended(loser)]);
  expect(won.accountId).toBeDefined();
  const [reason] = lost.reasons ?? [];
  expect(lost).toMatchObject({ state: 'rejected', attempts: 0 });
  expect(reason).toMatchObject({ code: /^duplicate_/, duplicateOf: winner });
}

type Fields = ReturnType<typeof newApplication>;
const alike: Readonly<Record<string, (of: Fields) => object>> = {
  'address and EIN': (of) => of,
  'EIN alone': ({ ein }) => ({ ...newApplication(), ein }),
};

test.each([1, 2])(
  'the partner with much in hand keeps its place, with %i processors',
  async (count) => {
    await fillLine();
    await startProcessors(count);
    await eventually(
      'work in hand',
      async () => (await requests.countDocuments({ state: 'completed' })) > 0,
    );
    const pairs: (readonly [string, string])[] = [];
    const first = Object.values(alike).map(() => newApplication());
    const before: string[] = [];
    for (const fields of first) before.push(await fromDemo(fields));
    for (const [index, likeIt] of Object.values(alike).entries())
      pairs.push([before[index]!, await fromOther(likeIt(first[index]!))]);
    for (const [winner, loser] of pairs) await expectWinner(winner, loser);
    // Where both are in one line, the first is brought forward.
    const waiting = await requests.countDocuments({ state: 'recorded' });
    if (count === 1) expect(waiting).toBeGreaterThan(AT_ONCE);
  },
);

test('a partner on hold loses its place meanwhile', async () => {
  await holds.change('demo', true, 'support');
  const fields = newApplication();
  const first = await fromDemo(fields);
  const second = await fromOther(fields);
  await startProcessors(1);
  expect((await ended(second)).accountId).toBeDefined();
  await holds.change('demo', false, 'support');
  await expectWinner(second, first);
});

test.each([
  ['EIN', ({ ein }: Fields) => ({ ...newApplication(), ein })],
  ['address', ({ email }: Fields) => ({ ...newApplication(), email: email.toUpperCase() })],
])('a first attempt that failed keeps its place by its %s', async (_, likeIt) => {
  const fields = newApplication();
  const failed = { version: 1, attempts: 1, lastError: 'x', dueAt: later(clock.now(), 5_000) };
  const record = recordOf(fields, clock.now(), failed);
  await requests.insertOne(record);
  const second = await fromOther(likeIt(fields));
  await startProcessors(1);
  await expectWinner(record._id, second);
  // Its back-off was not cut short.
  expect((await world.record(record._id))?.history[1]?.at.getTime()).toBeGreaterThanOrEqual(
    record.dueAt!.getTime() - 1_000,
  );
});

test('a dead letter has lost its place, and a body that is rejected is no obstacle', async () => {
  const fields = newApplication();
  const dead = recordOf(fields, clock.now(), { state: 'dead_lettered', version: 1 });
  const { dueAt: _none, ...stored } = dead;
  await requests.insertOne(stored);
  const faulty = await fromDemo({ ...fields, business_name: ' ' });
  const last = await fromOther(fields);
  await startProcessors(1);
  expect((await ended(faulty)).reasons).toMatchObject([{ code: 'blank' }]);
  expect((await ended(last)).accountId).toBeDefined();
});

test('many requests of one applicant do not wait for each other', async () => {
  const fields = newApplication();
  const ids: string[] = [];
  while (ids.length < DUPLICATES) {
    const some = Array.from({ length: AT_ONCE }, () => fromDemo(fields));
    ids.push(...(await Promise.all(some)));
  }
  await startProcessors(2);
  const [winner] = ids.toSorted();
  const all = await Promise.all(ids.map(ended));
  expect(all.filter(({ accountId }) => accountId !== undefined).map(({ _id }) => _id)).toEqual([
    winner,
  ]);
});

test('an earlier request that is never decided is waited for, an hour at most', async () => {
  const fields = newApplication();
  // Only a later version of the service may work on it.
  const newer = recordOf(fields, clock.now(), { schema: 99, version: 1 });
  await requests.insertOne(newer);
  const [second, third] = [await fromOther(fields), await fromOther(newApplication())];
  await startProcessors(1);
  await ended(third);
  const { waitsSince, attempts } = await eventually('the second to wait', async () => {
    const record = await world.record(second);
    return record?.waitsSince === undefined ? undefined : record;
  });
  expect(attempts).toBe(0);
  expect(await world.record(second)).toMatchObject({ state: 'recorded' });
  await requests.updateOne(
    { _id: second },
    { $set: { waitsSince: later(waitsSince!, -3_600_000) } },
  );
  expect((await ended(second)).accountId).toBeDefined();
});
