/** Partners on hold, disabled, and switched off by a Secret. */
import { afterEach, expect, test } from '@jest/globals';
import type { TrailEntry } from '../../internal/operators/trail/trail.ts';
import { OPERATOR_AUDIT } from '../../internal/self-audit/walk.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { operatorOf } from '../support/cli.ts';
import { INGEST_PATH, lookedUp, send } from '../support/http.ts';
import { hurryReconcile, submit } from '../support/processing.ts';
import { eventually } from '../support/wait.ts';
import { newApplication, worldOf } from '../support/world.ts';

const otherKey = newApiKey();
const { world, processor, ...first } = await worldOf(['ingest', 'processor'], {
  documentedRights: true,
  partners: [{ partner: 'other', keys: [otherKey] }],
});
let { ingest } = first;
const { cli, completed, done, failing } = operatorOf({ world, ingest });

afterEach(async () => {
  world.mail.setFault(undefined);
  // This is refused if the test has released it.
  await cli('partner', 'release', 'demo');
  await eventually('the processor to know of no hold', async () => (await holdsSeen()) === 0);
});

const lookUp = (id: string) =>
  lookedUp(() => send(ingest.url, { method: 'GET', key: world.key, path: `${INGEST_PATH}/${id}` }));
const holdsSeen = () => world.metric(processor, 'partner_ingest_partners_held');

/** Puts the partner on hold and waits until the processor follows. */
async function hold(...more: string[]): Promise<void> {
  await done('partner', 'hold', 'demo', ...more);
  await eventually('the processor to know the hold', async () => (await holdsSeen()) === 1);
}

test('the work of a partner on hold waits alone, and is completed after the release', async () => {
  const begun = new Date();
  await hold('--as', 'jane', '--why', 'key leaked');
  const id = await submit(world, ingest, newApplication());
  await world.recordIn('completed', await submit(world, ingest, newApplication(), otherKey));
  expect(await world.record(id)).toMatchObject({ state: 'recorded', attempts: 0, version: 0 });
  expect((await lookUp(id)).json).toMatchObject({ data: { state: 'processing', reasons: [] } });
  expect((await cli('show', id)).stdout).toContain('partner-ingest partner release demo');
  expect((await cli('partner', 'holds', '--json')).json()).toMatchObject([
    { partner: 'demo', by: 'jane', waiting: 1 },
  ]);
  await done('audit');
  expect(await cli('partner', 'hold', 'demo')).toMatchObject({ code: 1 });
  expect(await cli('partner', 'hold', '../acme')).toMatchObject({ code: 2, stdout: '' });

  await done('partner', 'release', 'demo');
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

test('a hold also stops the next attempt and the e-mail of work under way', async () => {
  const { id, application } = await failing();
  await hold();
  world.mail.setFault(undefined);
  const retried = await cli('retry', id);
  expect(retried).toMatchObject({ code: 0 });
  expect(retried.stdout).toContain('it waits: demo is on hold until "partner release demo"');
  await world.recordIn('completed', await submit(world, ingest, newApplication(), otherKey));
  expect(await world.record(id)).toMatchObject({ state: 'account_created' });
  expect(world.mail.mailsTo(application.email)).toEqual([]);
  await cli('partner', 'release', 'demo');
  await world.recordIn('completed', id);
  expect(world.mail.mailsTo(application.email)).toHaveLength(1);
});

test('a completed request stays completed after hold, close and release', async () => {
  const { id, mails } = await completed();
  await hold();
  expect((await cli('resend', '--state', 'completed', '--partner', 'demo')).stderr).toContain(
    'wait until "partner release": their partners are on hold',
  );
  const waiting = await submit(world, ingest, newApplication());
  const why = ['--yes', '--why', 'sent with the leaked key'];
  await done('close', '--partner', 'demo', '--state', 'recorded', ...why);
  expect((await lookUp(waiting)).json).toMatchObject({
    data: { state: 'rejected', reasons: [{ code: 'discarded' }] },
  });
  await cli('partner', 'release', 'demo');
  await done('resend', id, '--yes');
  await eventually('the second mail', () => mails().length === 2);
  await world.recordIn('completed', id);
});

const answers = (key: string, status: number) =>
  eventually(
    `${status}`,
    async () => (await send(ingest.url, { key, body: '{}' })).status === status,
  );

interface Listed {
  readonly partner: string;
  readonly problems: readonly Readonly<Record<'secret' | 'code' | 'message', string>>[];
}
const listed = async (partner: string) =>
  (await cli('partner', 'list', '--json')).json<Listed[]>().find((one) => one.partner === partner);

const problemsOf = async (partner: string) => (await listed(partner))?.problems ?? [];

/** Adds a Secret of the partner; returns whether its keys are active. */
async function addSecret(name: string, status: string): Promise<string> {
  const key = newApiKey();
  await world.writePartner({ partner: 'demo', name, keys: [key], status });
  return key;
}

test('a disabled partner is answered 403 with every key until it is enabled', async () => {
  const why = ['--as', 'jane', '--why', 'contract ended'];
  const disabled = await cli('partner', 'disable', 'demo', ...why, '--json');
  expect(disabled.json()).toEqual({ partner: 'demo', result: 'disabled', inactive_by: [] });
  await answers(world.key, 403);
  const later = await addSecret('later', 'active');
  await answers(later, 403);
  await answers(otherKey, 202);
  expect(await listed('demo')).toMatchObject({
    status: 'disabled',
    keys: { active: 2, inactive: 0 },
    disabled: { by: 'jane' },
  });
  expect((await cli('partner', 'list')).stdout).toMatch(/^demo +disabled +2 .* by jane$/m);
  expect((await cli('keys', 'list')).stdout).toMatch(/^demo +disabled /m);
  expect(await cli('partner', 'disable', 'demo')).toMatchObject({ code: 1 });
  expect(await cli('partner', 'disable', '../acme')).toMatchObject({ code: 2 });
  const unknown = await cli('partner', 'disable', 'nobody');
  expect(unknown).toMatchObject({ code: 0 });
  expect(unknown.stderr).toContain('no key of nobody is known');

  // The lists do not depend on the memory of ingest.
  await ingest.close();
  ingest = await world.start('ingest');
  await answers(world.key, 403);

  expect((await cli('partner', 'enable', 'demo')).stdout).toMatch(/^demo is enabled: /);
  await answers(world.key, 202);
  await answers(later, 202);
  expect(await cli('partner', 'enable', 'demo')).toMatchObject({ code: 1 });
  expect(await listed('demo')).toMatchObject({ status: 'active', disabled: null });
});

test('a Secret that does not count is listed by name, with what is wrong since when', async () => {
  const write = (keys: string[]) =>
    world.writePartner({
      partner: 'odd',
      keys,
      annotations: {
        'partner-ingest.io/not-after': 'tomorrow',
        'partner-ingest.io/status': 'on-holiday',
      },
    });
  await write([newApiKey()]);
  const seen = await eventually('its problems', async () => {
    const problems = await problemsOf('odd');
    return problems.length === 2 && problems;
  });
  // One does not say 403 where the other says that the keys are not used.
  expect(seen.map(({ code, message }) => [code, message])).toEqual([
    ['unknown_status', 'annotation partner-ingest.io/status must be "active" or "inactive"'],
    [
      'invalid_annotation',
      expect.stringMatching(/not-after .*; the keys of this Secret are not used$/),
    ],
  ]);
  expect(new Set(seen.map(({ secret }) => secret))).toEqual(new Set(['partner-keys/partner-odd']));
  expect((await cli('partner', 'list')).stdout).toMatch(
    /^odd +no keys .*Secret partner-keys\/partner-odd: annotation .*, since /m,
  );

  // Another problem beside it leaves its time.
  await world.writePartner({ partner: 'stray', keys: [], status: 'off' });
  await eventually('the other', async () => (await problemsOf('stray')).length > 0);
  expect(await problemsOf('odd')).toEqual(seen);
  await world.writePartner({ partner: 'odd', keys: [newApiKey()] });
  await eventually('no problem', async () => (await problemsOf('odd')).length === 0);
});

test('for a partner switched off by a Secret, lists name the Secret, and enable the command', async () => {
  const key = await addSecret('old', 'inactive');
  await answers(key, 403);
  await answers(world.key, 403);
  expect(await listed('demo')).toMatchObject({
    status: 'inactive',
    inactive_by: ['partner-keys/old'],
  });
  expect((await cli('keys', 'list', '--partner', 'demo', '--json')).json()).toContainEqual(
    expect.objectContaining({ secret: 'partner-keys/later', inactive_by: 'partner-keys/old' }),
  );
  expect((await cli('keys', 'list')).stdout).toMatch(/^demo +inactive by partner-keys\/old /m);
  const { code, stderr } = await cli('partner', 'enable', 'demo');
  expect(code).toBe(1);
  expect(stderr).toContain(
    'kubectl -n partner-keys annotate secret old partner-ingest.io/status=active --overwrite',
  );

  await addSecret('old', 'Active');
  await answers(world.key, 202);
  expect(await listed('demo')).toMatchObject({
    status: 'active',
    inactive_by: ['partner-keys/old'],
  });
});
