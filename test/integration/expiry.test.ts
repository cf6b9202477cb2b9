/** Deletes personal data that no TTL index can delete: bodies, and values of released accounts. */
import { beforeAll, expect, test } from '@jest/globals';
import { AccountStore } from '../../internal/account/account-store.ts';
import { accountIndexes } from '../../internal/account/account.ts';
import { DAY_MS, later, systemClock } from '../../internal/platform/process/clock.ts';
import { newId } from '../../internal/platform/stores/ids.ts';
import { ensureIndexes } from '../../internal/platform/stores/mongo-indexes.ts';
import { DueWork } from '../../internal/submission/due-work.ts';
import { submissionIndexes } from '../../internal/submission/submission.ts';
import { cliOf } from '../support/cli.ts';
import { submit } from '../support/processing.ts';
import { eventually } from '../support/wait.ts';
import { newApplication, worldOf } from '../support/world.ts';

const { world, ingest } = await worldOf(['ingest', 'processor'], { documentedRights: true });
const now = new Date();

beforeAll(async () => {
  await ensureIndexes(world.stores.db, [...submissionIndexes, ...accountIndexes]);
});

const { requests, accounts } = world.stores;

/** One round of expiry, `days` from now. */
async function expireIn(days: number): Promise<void> {
  const { db } = world.stores;
  const clock = { ...systemClock, now: () => later(now, days * DAY_MS) };
  await new DueWork({ db, clock }).removeBodies();
  await new AccountStore({ db, clock }).forgetReleased(later(clock.now(), -400 * DAY_MS));
}

test('a body is deleted 30 days after the end of its request, and its digest is kept', async () => {
  const done = await submit(world, ingest, newApplication());
  const rejected = await submit(world, ingest, { ...newApplication(), ein: 'none' });
  await world.recordIn('completed', done);
  await world.recordIn('rejected', rejected);
  const open = {
    ...(await world.record(done))!,
    _id: newId('req', new Date()),
    state: 'recorded' as const,
    dueAt: later(now, DAY_MS * 99),
  };
  const dead = { ...open, _id: newId('req', new Date()), state: 'dead_lettered' as const };
  for (const record of [open, dead]) {
    const { bodyUntil: _bodyUntil, ...kept } = record;
    await requests.insertOne(kept);
  }
  await expireIn(29);
  for (const id of [done, rejected, open._id, dead._id])
    expect(await world.record(id)).toHaveProperty('body');
  await expireIn(31);
  for (const id of [done, rejected]) {
    const record = await world.record(id);
    expect(record).toMatchObject({ bodyBytes: expect.any(Number), bodySha256: expect.any(String) });
    expect(record).not.toHaveProperty('body');
    expect(record).not.toHaveProperty('bodyUntil');
  }
  for (const id of [open._id, dead._id]) expect(await world.record(id)).toHaveProperty('body');
});

test('a request that an operator reopens keeps its body, and gets a new date of deletion once it is final again', async () => {
  const id = await submit(world, ingest, newApplication());
  const { bodyUntil } = await world.recordIn('completed', id);
  expect(await cliOf(world)('resend', id, '--yes')).toMatchObject({ code: 0 });
  await eventually('its end', async () => (await world.record(id))!.history.length === 5);
  expect((await world.recordIn('completed', id)).bodyUntil!.getTime()).toBeGreaterThan(
    bodyUntil!.getTime(),
  );
});

test('the values of a released account are deleted with its request', async () => {
  const released = { email: 'a@example.com', ein: '123456789', businessName: 'A' };
  const _id = newId('acc', new Date());
  const mark = `released:${_id}`;
  await accounts.insertOne({
    _id,
    email: mark,
    emailNormalized: mark,
    ein: mark,
    businessName: mark,
    requestId: newId('req', new Date()),
    partnerId: 'demo',
    createdAt: now,
    releasedAt: now,
    released,
  });
  await expireIn(399);
  expect(await accounts.findOne({ _id })).toMatchObject({ released });
  await expireIn(401);
  const left = await accounts.findOne({ _id });
  expect(left).toMatchObject({ email: mark });
  expect(left).not.toHaveProperty('released');
});

test('every TTL index deletes at exactly the date in the document', async () => {
  const { db } = world.stores;
  const expiring: Record<string, unknown> = {};
  for (const { name } of await db.listCollections().toArray()) {
    for (const index of await db.collection(name).listIndexes().toArray()) {
      if (index['key'].expiresAt !== undefined) expiring[name] = index['expireAfterSeconds'];
    }
  }
  expect(expiring).toEqual({ requests: 0, rate_limited: 0, operator_audit: 0 });
});
