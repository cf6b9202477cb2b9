/** What operators change: retry, resend, a corrected address, a released account; by the real command, done by the real processor. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { createHash } from 'node:crypto';
import { AccountCorrections } from '../../internal/account/account-corrections.ts';
import { AccountStore } from '../../internal/account/account-store.ts';
import { ACCOUNTS, type Account } from '../../internal/account/account.ts';
import { systemClock as clock } from '../../internal/platform/clock.ts';
import { OPERATOR_AUDIT, type TrailEntry } from '../../internal/operator/trail.ts';
import { SUBMISSIONS, type SubmissionRecord } from '../../internal/submission/submission.ts';
import { openOperatorWorld, type Ran } from '../support/cli.ts';
import { submit } from '../support/processing.ts';
import { eventually } from '../support/wait.ts';
import { newApplication, type InProcess, type World } from '../support/world.ts';

let world: World;
let ingest: InProcess;
let cli: (...words: string[]) => Promise<Ran>;

beforeAll(async () => {
  ({ world, ingest, cli } = await openOperatorWorld());
});
afterAll(() => world.close());

const requests = () => world.stores.db.collection<SubmissionRecord>(SUBMISSIONS);
const accountOf = (requestId: string) => world.stores.db.collection<Account>(ACCOUNTS).findOne({ requestId });
const trailOf = (requestId: string) =>
  world.stores.db.collection<TrailEntry>(OPERATOR_AUDIT).find({ requestId }).sort({ _id: 1 }).toArray();
const busy = { at: 'rcpt', answer: { code: 451, message: '4.3.0 try later' } } as const;
const unknownUser = { at: 'rcpt', answer: { code: 550, message: '5.1.1 unknown user' } } as const;

async function completed(): Promise<{ id: string; application: ReturnType<typeof newApplication> }> {
  const application = newApplication();
  const id = await submit(world, ingest, application);
  await world.recordIn('completed', id);
  return { id, application };
}

function tokenHashOf(mail: { readonly links: readonly string[] } | undefined): string {
  const link = new URL(mail?.links.find((url) => url.includes('token=')) ?? '');
  return createHash('sha256')
    .update(link.searchParams.get('token') ?? '')
    .digest('hex');
}

test('retry: a waiting request at once, then a dead letter; each with its place in history and the trail', async () => {
  const application = newApplication();
  world.mail.setFault(busy);
  const id = await submit(world, ingest, application);
  await eventually('the first attempt to fail', async () => (await world.record(id))?.attempts === 1);
  // The next attempt is its last, and comes by our hand instead of in 30 s.
  await requests().updateOne({ _id: id }, { $set: { attempts: 26 } });
  expect(await cli('retry', id)).toMatchObject({ code: 0 });
  await world.recordIn('dead_lettered', id);
  expect((await cli('show', id)).stdout).toMatch(/given up at attempt 27: the mail server refused/);
  expect((await cli('find', '--state', 'dead_lettered', '--json')).json()).toMatchObject([{ request_id: id }]);

  world.mail.setFault(undefined);
  const retried = await cli('retry', id, '--as', 'jane', '--why', 'relay is back', '--json');
  expect(retried.json()).toEqual({ request_id: id, from: 'dead_lettered', to: 'account_created' });
  const record = await world.recordIn('completed', id);
  expect(record.history.map(({ state, reason }) => [state, reason])).toEqual([
    ['recorded', undefined],
    ['account_created', undefined],
    ['dead_lettered', expect.stringContaining('451')],
    ['account_created', 'operator retry by jane'],
    ['completed', undefined],
  ]);
  expect(record).toMatchObject({ expiresAt: expect.any(Date), attempts: 0 });
  expect(record.dueAt).toBeUndefined();
  expect(world.mail.mailsTo(application.email)).toHaveLength(1);
  expect(await trailOf(id)).toMatchObject([
    { action: 'retry', by: 'test-operator', result: 'done' },
    { action: 'retry', by: 'jane', why: 'relay is back', result: 'done' },
  ]);

  const refused = await cli('retry', id);
  expect(refused).toMatchObject({ code: 1, stdout: '' });
  expect(refused.stderr).toMatch(/is completed .*nothing to retry\n$/);
});

test('retry of many: a list without --yes, done with it, and only what can be retried', async () => {
  const ids: string[] = [];
  world.mail.setFault(unknownUser);
  for (let index = 0; index < 3; index += 1) ids.push(await submit(world, ingest, newApplication()));
  for (const id of ids) await world.recordIn('undeliverable', id);
  world.mail.setFault(undefined);
  expect(await cli('erase', ids[0] ?? '', '--yes')).toMatchObject({ code: 0 });

  const dry = await cli('retry', '--state', 'undeliverable');
  expect(dry).toMatchObject({ code: 0 });
  expect(dry.stdout).toContain('2 would be retried; add --yes');
  expect(dry.stdout).toContain('was erased');
  expect(await requests().countDocuments({ _id: { $in: ids }, state: 'undeliverable' })).toBe(3);

  expect((await cli('retry', '--state', 'undeliverable', '--yes')).stdout).toContain('2 retried');
  for (const id of ids.slice(1)) await world.recordIn('completed', id);
  expect(await cli('retry', '--state', 'dead_lettered', '--since', '1s')).toMatchObject({ code: 1 });
});

test('resend: the same link once more, in a mail of its own, noted as resent and not as a fault', async () => {
  const { id, application } = await completed();
  expect(await cli('resend', id)).toMatchObject({ code: 0 });
  await eventually('the second mail', () => world.mail.mailsTo(application.email).length === 2);
  await world.recordIn('completed', id);
  const [first, second] = world.mail.mailsTo(application.email);
  expect(tokenHashOf(second)).toBe(tokenHashOf(first));
  expect(tokenHashOf(second)).toBe((await accountOf(id))?.activation?.tokenHash);
  expect(second?.messageId).not.toBe(first?.messageId);
  expect((await cli('show', id)).stdout).toContain('waits to be mailed again: operator resend by test-operator');

  // A used link is not made to work again.
  await world.stores.db.collection(ACCOUNTS).updateOne({ requestId: id }, { $unset: { activation: true } });
  const refused = await cli('resend', id);
  expect(refused).toMatchObject({ code: 1 });
  expect(refused.stderr).toContain('has been used');
});

test('correct-email: nothing without --yes; then a new link to the new address, and the old link is void', async () => {
  const { id, application } = await completed();
  const address = `right-${application.email}`;
  const dry = await cli('account', 'correct-email', id, address);
  expect(dry).toMatchObject({ code: 0 });
  expect(dry.stdout).toContain('nothing was changed; add --yes');
  expect(dry.stdout).not.toContain(address);
  expect((await accountOf(id))?.email).toBe(application.email);
  expect(await trailOf(id)).toEqual([]);

  expect(await cli('account', 'correct-email', id, address, '--yes')).toMatchObject({ code: 0 });
  const mail = await world.mail.waitForMail((caught) => caught.to.includes(address), 20_000);
  await world.recordIn('completed', id);
  const account = await accountOf(id);
  expect(account).toMatchObject({ email: address, emailNormalized: address, ein: application.ein });
  expect(account?.activation?.tokenHash).toBe(tokenHashOf(mail));
  expect(tokenHashOf(mail)).not.toBe(tokenHashOf(world.mail.mailsTo(application.email)[0]));
  expect(world.mail.mailsTo(application.email)).toHaveLength(1);
  expect((await cli('find', '--email', address, '--json')).json()).toMatchObject([{ request_id: id }]);
});

test('correct-email of an undeliverable and of a still failing request; another account keeps its address', async () => {
  const other = await completed();
  for (const [fault, state] of [
    [unknownUser, 'undeliverable'],
    [busy, 'account_created'],
  ] as const) {
    const application = newApplication();
    world.mail.setFault(fault);
    const id = await submit(world, ingest, application);
    await eventually(`${state} with an error`, async () => {
      const record = await world.record(id);
      return record?.state === state && record.lastError !== undefined;
    });
    world.mail.setFault(undefined);
    const taken = await cli('account', 'correct-email', id, other.application.email.toUpperCase(), '--yes');
    expect(taken).toMatchObject({ code: 1, stdout: '' });
    expect(taken.stderr).toContain(`belongs to another account (${other.id})`);

    const address = `right-${application.email}`;
    expect(await cli('account', 'correct-email', id, address, '--yes')).toMatchObject({ code: 0 });
    await world.recordIn('completed', id);
    expect(world.mail.mailsTo(address)).toHaveLength(1);
    expect(world.mail.mailsTo(application.email)).toHaveLength(0);
  }
});

test('correct-email given again finishes what was cut off: after the account, and after the e-mail of its own accord', async () => {
  const corrections = new AccountCorrections({ collection: world.stores.db.collection<Account>(ACCOUNTS), clock });
  const { id, application } = await completed();
  const address = `right-${application.email}`;
  // Cut off after its first write: nobody mails the new address, and the request is found by the old one.
  await corrections.correctEmail((await accountOf(id))!, address);
  expect((await world.record(id))?.state).toBe('completed');
  const dry = await cli('account', 'correct-email', id, address);
  expect(dry.stdout).toContain('was cut off: it is finished and a new link is mailed');
  expect(await cli('account', 'correct-email', id, address, '--yes')).toMatchObject({ code: 0 });
  const mail = await world.mail.waitForMail((caught) => caught.to.includes(address), 20_000);
  await world.recordIn('completed', id);
  expect((await accountOf(id))?.activation?.tokenHash).toBe(tokenHashOf(mail));
  expect(await accountOf(id)).toMatchObject({ linkVersion: 1, mailVersion: 1 });
  expect((await cli('find', '--email', address, '--json')).json()).toMatchObject([{ request_id: id }]);
  const done = await cli('account', 'correct-email', id, address, '--yes');
  expect(done).toMatchObject({ code: 1, stdout: '' });
  expect(done.stderr).toContain('has this address already');

  // Cut off at the same place with work ahead: the processor mails the new address by itself, only the record is left.
  const other = newApplication();
  world.mail.setFault(busy);
  const waiting = await submit(world, ingest, other);
  await eventually('a failed attempt', async () => (await world.record(waiting))?.attempts === 1);
  await corrections.correctEmail((await accountOf(waiting))!, `right-${other.email}`);
  world.mail.setFault(undefined);
  expect(await cli('retry', waiting)).toMatchObject({ code: 0 });
  await world.recordIn('completed', waiting);
  const again = await cli('account', 'correct-email', waiting, `right-${other.email}`, '--yes');
  expect(again).toMatchObject({ code: 0, stdout: expect.stringContaining('nothing is mailed') });
  expect(await world.record(waiting)).toMatchObject({
    state: 'completed',
    applicant: { email: `right-${other.email}` },
  });
  expect(world.mail.mailsTo(`right-${other.email}`)).toHaveLength(1);
  expect(await trailOf(waiting)).toMatchObject([
    { action: 'retry' },
    { action: 'account correct-email', result: 'done' },
  ]);
});

test('release: the EIN and the address may be applied with again; the account stays and the trail tells', async () => {
  const { id, application } = await completed();
  const again = await submit(world, ingest, application);
  await world.recordIn('rejected', again);
  expect((await cli('account', 'release', id)).stdout).toContain('add --yes');
  expect((await accountOf(id))?.ein).toBe(application.ein);

  expect(await cli('account', 'release', id, '--yes', '--why', 'EIN of another business')).toMatchObject({ code: 0 });
  const account = await accountOf(id);
  expect(account).toMatchObject({
    releasedAt: expect.any(Date),
    released: { email: application.email, ein: application.ein, businessName: application.business_name },
  });
  expect(account?.activation).toBeUndefined();
  const third = await submit(world, ingest, application);
  await world.recordIn('completed', third);
  expect(world.mail.mailsTo(application.email)).toHaveLength(2);

  expect((await cli('show', id)).stdout).toContain('operator test-operator: account release (EIN of another business)');
  for (const words of [
    ['account', 'release', id, '--yes'],
    ['resend', id],
    ['account', 'correct-email', id, 'new@example.com', '--yes'],
  ]) {
    const refused = await cli(...words);
    expect(refused).toMatchObject({ code: 1, stdout: '' });
    expect(refused.stderr).toContain('released');
  }
  expect(await cli('audit')).toMatchObject({ code: 0 });
});

test('a mail to the old address that is in hand during the correction does not count for the new one', async () => {
  const application = newApplication();
  world.mail.setFault(busy);
  const id = await submit(world, ingest, application);
  await eventually('a failed attempt', async () => (await world.record(id))?.attempts === 1);
  const before = await accountOf(id);
  const address = `right-${application.email}`;
  expect(await cli('account', 'correct-email', id, address, '--yes')).toMatchObject({ code: 0 });
  // A worker that was frozen with the old address in hand wakes up and notes that its mail is out.
  const intent = { claim: 0, startedAt: new Date(), attempt: 1, host: 'frozen' };
  const late = new AccountStore({ collection: world.stores.db.collection<Account>(ACCOUNTS), clock });
  await late.beginHandOver(before!, intent, { tokenHash: 'old', expiresAt: new Date() });
  await late.endHandOver(before!, intent, { result: 'accepted', answer: '250 ok' });
  const account = await accountOf(id);
  expect(account?.notifiedAt).toBeUndefined();
  expect(account?.activation?.tokenHash).not.toBe('old');
  expect(account?.mail?.handOvers['0']).toMatchObject({ result: 'accepted', host: 'frozen' });

  await eventually('a failed attempt at the new address', async () => (await world.record(id))?.attempts === 1);
  world.mail.setFault(undefined);
  expect(await cli('retry', id)).toMatchObject({ code: 0 });
  await world.mail.waitForMail((caught) => caught.to.includes(address), 20_000);
});
