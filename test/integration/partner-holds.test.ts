/** Holds on a partner's work, by the real command: kept, let go on, ended; another partner's work goes on meanwhile. */
import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals';
import type { TrailEntry } from '../../internal/audit/entry.ts';
import { OPERATOR_AUDIT } from '../../internal/audit/trail.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { PARTNER_HOLDS } from '../../internal/partner/holds.ts';
import { SUBMISSIONS, type SubmissionRecord } from '../../internal/submission/submission.ts';
import { cliOf, type Ran } from '../support/cli.ts';
import { INGEST_PATH, lookedUp, send } from '../support/http.ts';
import { submit } from '../support/processing.ts';
import { eventually } from '../support/wait.ts';
import { newApplication, openWorld, requestIdOf, type InProcess, type World } from '../support/world.ts';

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
  await eventually('the key of the other partner', async () => (await lookUp('req_x', otherKey)).status === 404);
});
afterAll(() => world.close());
afterEach(async () => {
  world.mail.setFault(undefined);
  // Refused where the test has done it.
  await cli('partner', 'release', 'demo');
  await eventually('the processor to know of no hold', async () => (await holdsSeen()) === 0);
  // What was discarded stays so, also for a record of an earlier day in another test.
  await world.stores.db.collection(PARTNER_HOLDS).deleteMany({});
});

const lookUp = (id: string, key = world.key) =>
  lookedUp(() => send(ingest.url, { method: 'GET', key, path: `${INGEST_PATH}/${id}` }));
const requests = () => world.stores.db.collection<SubmissionRecord>(SUBMISSIONS);
const holdsSeen = () => world.metric(processor, 'partner_ingest_partners_held');
const send202 = () => submit(world, ingest, newApplication());

/** Gives the command, and waits until the processor follows it. */
async function hold(...more: string[]): Promise<void> {
  expect(await cli('partner', 'hold', 'demo', ...more)).toMatchObject({ code: 0 });
  await eventually('the processor to know the hold', async () => (await holdsSeen()) === 1);
}
const setAside = (id: string): Promise<SubmissionRecord> =>
  eventually('the record to be set aside', async () => {
    const record = await world.record(id);
    return record?.holdId === undefined ? undefined : record;
  });

test('held work is set aside and nobody else waits; released, it is completed', async () => {
  const begun = new Date();
  const startedAt = performance.now();
  await hold('--as', 'jane', '--why', 'key leaked');
  console.log(`hold: in force ${Math.round(performance.now() - startedAt)} ms after the command was given`);
  const id = await send202();
  const record = await setAside(id);
  expect(record).toMatchObject({ state: 'recorded', attempts: 0 });
  expect([record.dueAt, record.heldUntil]).toEqual([undefined, undefined]);
  const others = requestIdOf(await send(ingest.url, { key: otherKey, body: JSON.stringify(newApplication()) }));
  await world.recordIn('completed', others);
  expect((await lookUp(id)).json).toMatchObject({ data: { state: 'processing', reasons: [] } });
  expect((await cli('show', id)).stdout).toContain('partner-ingest partner release demo');
  expect((await cli('partner', 'holds', '--json')).json()).toMatchObject([
    { partner: 'demo', state: 'held', by: 'jane', set_aside: 1 },
  ]);
  expect(await cli('audit')).toMatchObject({ code: 0 });
  expect(await cli('partner', 'hold', 'demo')).toMatchObject({ code: 1 });

  expect(await cli('partner', 'release', 'demo')).toMatchObject({ code: 0 });
  await world.recordIn('completed', id);
  expect(await cli('partner', 'release', 'demo')).toMatchObject({ code: 1 });
  const trail = world.stores.db
    .collection<TrailEntry>(OPERATOR_AUDIT)
    .find({ partnerId: 'demo', result: { $ne: 'begun' }, at: { $gte: begun } })
    .sort({ seq: 1 });
  expect(await trail.toArray()).toMatchObject([
    { action: 'partner hold', by: 'jane', why: 'key leaked', result: 'done' },
    { action: 'partner release', result: 'done' },
  ]);
});

test('what is under way is held, too: neither its next attempt nor its e-mail comes', async () => {
  world.mail.setFault({ at: 'rcpt', answer: { code: 451, message: '4.3.0 try later' } });
  const application = newApplication();
  const id = await submit(world, ingest, application);
  await eventually('the first attempt to fail', async () => (await world.record(id))?.lastError !== undefined);
  await hold();
  world.mail.setFault(undefined);
  expect(await cli('retry', id)).toMatchObject({ code: 0 });
  expect(await setAside(id)).toMatchObject({ state: 'account_created' });
  expect(world.mail.mailsTo(application.email)).toEqual([]);
  await cli('partner', 'release', 'demo');
  await world.recordIn('completed', id);
  expect(world.mail.mailsTo(application.email)).toHaveLength(1);
});

test('a hold since a time leaves alone what came before', async () => {
  await hold('--since', '7d');
  const held = await send202();
  await setAside(held);
  const { insertedId: before } = await requests().insertOne({
    ...(await world.record(held))!,
    _id: requestIdOfAge(held),
    receivedAt: new Date(Date.now() - 8 * 86_400_000),
    dueAt: new Date(),
    body: (await world.record(held))!.body!,
    state: 'recorded',
  });
  await requests().updateOne({ _id: before }, { $unset: { holdId: true } });
  // The same applicant: whichever comes first has the account.
  await world.recordIn('completed', before);
  await cli('partner', 'release', 'demo');
  await world.recordIn('rejected', held);
});

/** Another id, for a copy of a record. */
const requestIdOfAge = (id: string): string => `${id.slice(0, -1)}${id.endsWith('0') ? '1' : '0'}`;

test('discard ends what was held, with a reason for its partner; what comes later stays held', async () => {
  await hold();
  const id = await send202();
  await setAside(id);
  const tried = await cli('partner', 'discard', 'demo', '--json');
  expect(tried.json()).toEqual({ dry_run: true, partner: 'demo', set_aside: 1 });
  expect((await world.record(id))?.state).toBe('recorded');

  expect(await cli('partner', 'discard', 'demo', '--yes', '--as', 'jane')).toMatchObject({ code: 0 });
  const record = await world.recordIn('rejected', id);
  expect(record.history.at(-1)).toMatchObject({ state: 'rejected', reason: 'discarded by jane' });
  expect(record.expiresAt).toBeInstanceOf(Date);
  expect((await lookUp(id)).json).toMatchObject({
    data: {
      state: 'rejected',
      reasons: [{ code: 'discarded', message: 'The operator ended this application without processing it.' }],
    },
  });
  const later = await send202();
  await setAside(later);
  expect(await cli('audit')).toMatchObject({ code: 0 });
  await cli('partner', 'release', 'demo');
  await world.recordIn('completed', later);
});

test('a record that was set aside after its hold had ended is taken up, and one of no hold at all is no partner’s', async () => {
  await hold();
  const id = await send202();
  const { holdId } = await setAside(id);
  await cli('partner', 'release', 'demo');
  await world.recordIn('completed', id);
  const late = await send202();
  await world.recordIn('completed', late);
  await requests().updateOne(
    { _id: late },
    { $set: { holdId: holdId!, state: 'account_created' }, $unset: { expiresAt: true } },
  );
  await world.recordIn('completed', late);
});

test.each([
  ['partner hold', ['partner', 'hold', '../acme'], 2],
  ['partner discard of what is not held', ['partner', 'discard', 'demo', '--yes'], 1],
  ['partner release of what is not held', ['partner', 'release', 'nobody'], 1],
])('%s is refused', async (_what, words, code) => {
  expect(await cli(...words)).toMatchObject({ code, stdout: '' });
});
