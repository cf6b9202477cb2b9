/** The line of mails in the real service before a mail server that refuses us or hangs up. */
import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals';
import { pastLockConflicts } from '../../internal/platform/mongo.ts';
import { SUBMISSIONS } from '../../internal/submission/submission.ts';
import { cliOf } from '../support/cli.ts';
import { submit } from '../support/processing.ts';
import { startRawRelay } from '../support/raw-relay.ts';
import { eventually } from '../support/wait.ts';
import { newApplication, openWorld, type InProcess, type World } from '../support/world.ts';

let world: World;
let ingest: InProcess;
let processor: InProcess;

beforeAll(async () => {
  world = await openWorld();
  ingest = await world.start('ingest');
  processor = await world.start('processor');
});
afterEach(async () => {
  world.mail.setFault(undefined);
  await pastLockConflicts(() => world.stores.db.collection(SUBMISSIONS).deleteMany({}));
});
afterAll(() => world.close());

test('a refused sender stops all mails; once it is corrected, `retry` sends them at once', async () => {
  world.mail.setFault({ at: 'mail', answer: { code: 550, message: '5.7.1 Sender refused' } });
  const ids = await Promise.all(
    Array.from({ length: 24 }, () => submit(world, ingest, newApplication())),
  );
  await eventually('the pause', async () => {
    const records = await world.records({ _id: { $in: ids }, state: 'account_created' });
    const refused = await world.metric(processor, 'partner_ingest_sender_refused');
    return records.length === ids.length && refused === 1;
  });
  world.mail.setFault(undefined);
  const correctedAt = Date.now();
  await Promise.all(
    ids.map((id) =>
      eventually('no worker to have the request in hand', async () => {
        const { code } = await cliOf(world)('retry', id);
        return code === 0 || (await world.record(id))?.state === 'completed';
      }),
    ),
  );
  const done = await Promise.all(ids.map((id) => world.recordIn('completed', id)));
  expect(done.map(({ attempts }) => attempts)).toEqual(ids.map(() => 0));
  const lastAt = Math.max(...done.map(({ stateAt }) => stateAt.getTime()));
  expect(lastAt - correctedAt).toBeLessThan(15_000);
});

test('a relay that says 421 at RCPT and hangs up costs no attempt', async () => {
  const relay = await startRawRelay();
  const other = await openWorld();
  try {
    relay.odd = { at: 'RCPT', says: '421 4.7.0 Try again later, closing connection', closes: true };
    const otherIngest = await other.start('ingest');
    await other.start('processor', { SMTP_URL: `smtp://127.0.0.1:${relay.port}` });
    const id = await submit(other, otherIngest, newApplication());
    await eventually('several sessions', () => relay.connections >= 2);
    expect(await other.record(id)).toMatchObject({ state: 'account_created', attempts: 0 });
    relay.odd = undefined;
    expect(await other.recordIn('completed', id)).toMatchObject({ attempts: 0 });
    expect(relay.contents).toHaveLength(1);
  } finally {
    await other.close();
    await relay.close();
  }
});
