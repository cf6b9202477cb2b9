/** Partners on hold, by the real command; another partner's work goes on meanwhile. */
import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals';
import type { TrailEntry } from '../../internal/audit/entry.ts';
import { OPERATOR_AUDIT } from '../../internal/audit/trail.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { cliOf, type Ran } from '../support/cli.ts';
import { INGEST_PATH, lookedUp, send } from '../support/http.ts';
import { hurryReconcile, submit } from '../support/processing.ts';
import { eventually } from '../support/wait.ts';
import {
  newApplication,
  openWorld,
  requestIdOf,
  type InProcess,
  type World,
} from '../support/world.ts';

let world: World;
let ingest: InProcess;
let processor: InProcess;
let cli: (...words: string[]) => Promise<Ran>;
const otherKey = newApiKey();

beforeAll(async () => {
  world = await openWorld({ environment: { STATUS_ENDPOINT: 'true' } });
  await world.writePartner({ partner: 'other', keys: [otherKey] });
  ingest = await world.start('ingest');
  processor = await world.start('processor');
  cli = cliOf(world);
  await eventually(
    'the key of the other partner',
    async () => (await lookUp('req_x', otherKey)).status === 404,
  );
});
afterAll(() => world.close());
afterEach(async () => {
  world.mail.setFault(undefined);
  // Refused where the test has done it.
  await cli('partner', 'release', 'demo');
  await eventually('the processor to know of no hold', async () => (await holdsSeen()) === 0);
});

const lookUp = (id: string, key = world.key) =>
  lookedUp(() => send(ingest.url, { method: 'GET', key, path: `${INGEST_PATH}/${id}` }));
const holdsSeen = () => world.metric(processor, 'partner_ingest_partners_held');
const send202 = () => submit(world, ingest, newApplication());

/** Gives the command, and waits until the processor follows it. */
async function hold(...more: string[]): Promise<void> {
  expect(await cli('partner', 'hold', 'demo', ...more)).toMatchObject({ code: 0 });
  await eventually('the processor to know the hold', async () => (await holdsSeen()) === 1);
}

test('the work of a partner on hold waits and nobody else does; released, it is completed', async () => {
  const begun = new Date();
  await hold('--as', 'jane', '--why', 'key leaked');
  const id = await send202();
  const others = requestIdOf(
    await send(ingest.url, { key: otherKey, body: JSON.stringify(newApplication()) }),
  );
  await world.recordIn('completed', others);
  expect(await world.record(id)).toMatchObject({ state: 'recorded', attempts: 0, version: 0 });
  expect((await lookUp(id)).json).toMatchObject({ data: { state: 'processing', reasons: [] } });
  expect((await cli('show', id)).stdout).toContain('partner-ingest partner release demo');
  expect((await cli('partner', 'holds', '--json')).json()).toMatchObject([
    { partner: 'demo', by: 'jane', waiting: 1 },
  ]);
  expect(await cli('audit')).toMatchObject({ code: 0 });
  expect(await cli('partner', 'hold', 'demo')).toMatchObject({ code: 1 });
  expect(await cli('partner', 'hold', '../acme')).toMatchObject({ code: 2, stdout: '' });

  expect(await cli('partner', 'release', 'demo')).toMatchObject({ code: 0 });
  await hurryReconcile(world, [id]);
  await world.recordIn('completed', id);
  expect(await cli('partner', 'release', 'demo')).toMatchObject({ code: 1 });
  expect(await cli('partner', 'holds')).toMatchObject({
    code: 0,
    stdout: 'no partner is on hold\n',
  });
  const trail = world.stores.db
    .collection<TrailEntry>(OPERATOR_AUDIT)
    .find({ partnerId: 'demo', result: 'done', at: { $gte: begun } })
    .sort({ _id: 1 });
  expect(await trail.toArray()).toMatchObject([
    { action: 'partner hold', by: 'jane', why: 'key leaked' },
    { action: 'partner release' },
  ]);
});

test('what is under way waits, too: neither its next attempt nor its e-mail comes', async () => {
  world.mail.setFault({ at: 'rcpt', answer: { code: 450, message: '4.2.1 try later' } });
  const application = newApplication();
  const id = await submit(world, ingest, application);
  await eventually(
    'the first attempt to fail',
    async () => (await world.record(id))?.lastError !== undefined,
  );
  await hold();
  world.mail.setFault(undefined);
  const retried = await cli('retry', id);
  expect(retried).toMatchObject({ code: 0 });
  expect(retried.stdout).toContain('it waits: demo is on hold until "partner release demo"');
  const others = requestIdOf(
    await send(ingest.url, { key: otherKey, body: JSON.stringify(newApplication()) }),
  );
  await world.recordIn('completed', others);
  expect(await world.record(id)).toMatchObject({ state: 'account_created' });
  expect(world.mail.mailsTo(application.email)).toEqual([]);
  await cli('partner', 'release', 'demo');
  await world.recordIn('completed', id);
  expect(world.mail.mailsTo(application.email)).toHaveLength(1);
});

test('what was completed stays completed after hold, close and release, and can be mailed again', async () => {
  const application = newApplication();
  const done = await submit(world, ingest, application);
  await world.recordIn('completed', done);
  await hold();
  expect((await cli('resend', '--state', 'completed', '--partner', 'demo')).stderr).toContain(
    'wait until "partner release": their partners are on hold',
  );
  const waiting = await send202();
  const why = ['--yes', '--why', 'sent with the leaked key'];
  expect(await cli('close', '--partner', 'demo', '--state', 'recorded', ...why)).toMatchObject({
    code: 0,
  });
  expect((await lookUp(waiting)).json).toMatchObject({
    data: { state: 'rejected', reasons: [{ code: 'discarded' }] },
  });
  await cli('partner', 'release', 'demo');
  expect(await cli('resend', done, '--yes')).toMatchObject({ code: 0 });
  await eventually('the second mail', () => world.mail.mailsTo(application.email).length === 2);
  expect(await world.recordIn('completed', done)).toMatchObject({ state: 'completed' });
});
