/**
 * The whole way of an application, its activation link on the reference login page, and what is
 * deleted when.
 */
import { afterAll, expect, test } from '@jest/globals';
import { startLoginPage } from '../../deploy/local/login-page.ts';
import { AccountCorrections } from '../../internal/account/account-corrections.ts';
import { AccountStore } from '../../internal/account/account-store.ts';
import { accountIndexes } from '../../internal/account/account.ts';
import { LedgerStore } from '../../internal/account/mail-ledger.ts';
import { DAY_MS, later, systemClock as clock } from '../../internal/platform/process/clock.ts';
import { newId, referenceOf } from '../../internal/platform/stores/ids.ts';
import { ensureIndexes } from '../../internal/platform/stores/mongo-indexes.ts';
import { DueWork } from '../../internal/submission/due-work.ts';
import { submissionIndexes } from '../../internal/submission/submission.ts';
import { trafficIndexes } from '../../internal/traffic/traffic.ts';
import { operatorOf } from '../support/cli.ts';
import { submit } from '../support/processing.ts';
import { eventually } from '../support/wait.ts';
import { newApplication, worldOf } from '../support/world.ts';

const OLD_SECRET = 'an-old-secret-for-tests-of-32-characters';
const SECRETS = `key-new:a-new-secret-for-tests-of-32-characters,${OLD_SECRET}`;

const { world, ingest } = await worldOf(['ingest'], { documentedRights: true });
const { cli, done, accountOf, ...operator } = operatorOf({ world, ingest });
const { mongodbUri, database, db, requests, accounts } = world.stores;
const page = await startLoginPage({ mongodbUri, database });
const processor = await world.start('processor', {
  LOGIN_URL: page.url,
  LINK_SECRET: SECRETS,
  MAIL_SUPPORT_CONTACT: '+1 555 0100',
});
afterAll(() => page.close());

async function completed() {
  const one = await operator.completed();
  return { ...one, link: linkIn(one.mails()[0]) };
}

function linkIn(mail: { readonly links: readonly string[] } | undefined): URL {
  return new URL(mail?.links.find((url) => url.includes('token=')) ?? 'none:');
}

const confirm = (link: URL): Promise<Response> =>
  fetch(page.url, { method: 'POST', body: link.searchParams });
const mailsTo = (email: string): number => world.mail.mailsTo(email).length;

test('an application leads to one account, one e-mail and one link, which activates it by a button', async () => {
  const { id, application, link } = await completed();
  const states = (await world.record(id))!.history.map(({ state }) => state);
  expect(states).toEqual(['recorded', 'account_created', 'completed']);
  expect(await world.accounts({ requestId: id })).toMatchObject([
    {
      email: application.email,
      emailNormalized: application.email,
      ein: application.ein,
      businessName: application.business_name,
      partnerId: 'demo',
      notifiedAt: expect.any(Date),
    },
  ]);
  const [mail] = world.mail.mailsTo(application.email);
  expect(mailsTo(application.email)).toBe(1);
  expect(mail!.text).toContain(`Your reference number: ${referenceOf(id)}`);
  expect(mail!.text).toContain('Questions? Contact +1 555 0100');
  for (const _ of ['a scanner', 'the applicant']) {
    const opened = await fetch(link);
    expect(opened.status).toBe(200);
    expect(await opened.text()).toContain('<button>Activate account</button>');
  }
  expect((await accountOf(id)).activation).not.toHaveProperty('usedAt');
  expect((await cli('show', id)).stdout).toContain('its link is open until');

  const [one, other] = await Promise.all([confirm(link), confirm(link)]);
  const answers = [await one.text(), await other.text()].map(
    (text) => /<h1>(.*)<\/h1>/.exec(text)?.[1],
  );
  expect(new Set(answers)).toEqual(
    new Set(['This link has been used', 'Your account is activated']),
  );
  expect((await accountOf(id)).activation?.usedAt).toBeInstanceOf(Date);
  expect(await (await confirm(link)).text()).toContain('This link has been used');
  expect((await cli('show', id)).stdout).toContain('its link has been used');
  expect((await cli('show', id, '--json')).json()).toMatchObject({ account: { link: 'used' } });
});

test('the page refuses another token, another account and an expired link', async () => {
  const [mine, other] = [await completed(), await completed()];
  const forged = new URL(mine.link);
  forged.searchParams.set('token', other.link.searchParams.get('token') ?? '');
  expect(await (await confirm(forged)).text()).toContain('not valid');
  expect(
    await (await fetch(`${page.url}?account=${encodeURIComponent('"><script>')}&token=x`)).text(),
  ).not.toContain('<script>');

  await accounts.updateOne(
    { requestId: mine.id },
    { $set: { 'activation.expiresAt': new Date(0) } },
  );
  expect(await (await confirm(mine.link)).text()).toContain('has expired');
  expect((await cli('show', mine.id)).stdout).toContain('its link expired');
});

test('after a link is used, no command mails that account again', async () => {
  const { id, application, link } = await completed();
  const before = await accountOf(id);
  await confirm(link);
  for (const words of [
    ['resend', id, '--yes'],
    ['account', 'correct-email', id, `right-${application.email}`, '--yes'],
    ['bounce', '--request', id],
  ]) {
    const refused = await cli(...words);
    expect(refused).toMatchObject({ code: 1 });
    expect(refused.stderr).toContain('has been used');
  }
  const intent = { claim: 99, startedAt: clock.now(), attempt: 1, host: 'test' };
  const ledger = new LedgerStore({ db, clock });
  const fresh = { tokenHash: before.activation?.tokenHash ?? '', expiresAt: clock.now() };
  expect(await ledger.beginHandOver(before, intent, fresh)).toBe(false);
  expect((await accountOf(id)).mail).toEqual(before.mail);

  // The relay took the mail without an answer, and the request became a dead letter.
  await accounts.updateOne({ requestId: id }, { $unset: { notifiedAt: true } });
  await requests.updateOne({ _id: id }, { $set: { state: 'dead_lettered' } });
  expect((await cli('show', id)).stdout).toContain('so the e-mail arrived');
  await done('retry', id);
  await world.recordIn('completed', id);
  expect(mailsTo(application.email)).toBe(1);
  expect((await cli('audit')).stdout).not.toContain('mail_not_noted');
});

test('after a leak, a resend replaces the link made with the removed secret', async () => {
  const { id, application } = await completed();
  await accounts.updateOne({ requestId: id }, { $set: { 'activation.keyId': 'key-leaked' } });
  await done('resend', id, '--yes');
  await eventually('the second mail', () => mailsTo(application.email) === 2);
  await world.recordIn('completed', id);
  expect((await accountOf(id)).activation?.keyId).toBe('key-new');
});

test('after the retention of the request, commands still work on its account', async () => {
  const [mailed, freed] = [await completed(), await completed()];
  await requests.deleteMany({ _id: { $in: [mailed.id, freed.id] } });
  const { _id: accountId } = await accountOf(mailed.id);
  const shown = await cli('show', accountId);
  expect(shown).toMatchObject({ code: 0 });
  expect(shown.stdout).toContain('past its retention');
  expect((await cli('show', mailed.id, '--json')).json()).toMatchObject({
    request_id: mailed.id,
    past_retention: true,
  });

  const address = `right-${mailed.application.email}`;
  const correct = ['account', 'correct-email', mailed.id, address];
  await done(...correct);
  expect(await requests.countDocuments({ _id: mailed.id })).toBe(0);
  await done(...correct, '--yes');
  expect(await world.recordIn('completed', mailed.id)).toMatchObject({
    accountId,
    applicant: { email: address },
    expiresAt: expect.any(Date),
  });
  expect((await accountOf(mailed.id)).mail?.begun).toBe(2);

  const { _id: other } = await accountOf(freed.id);
  await done('erase', other, '--yes');
  const again = { ...newApplication(), ein: freed.application.ein };
  await world.recordIn('completed', await submit(world, ingest, again));
});

test('correct-email given again finishes a correction that was cut off', async () => {
  const { id, application } = await completed();
  const address = `right-${application.email}`;
  const words = ['account', 'correct-email', id, address];
  // The command ended after its first write: no mail went to the new address, and the request is
  // still found by the old one.
  await new AccountCorrections({ db, clock }).correctEmail(await accountOf(id), address);
  expect((await done(...words)).stdout).toContain(
    'was cut off: it is finished and a new link is mailed',
  );
  await done(...words, '--yes');
  await world.recordIn('completed', id);
  expect(await accountOf(id)).toMatchObject({ linkVersion: 1, mailVersion: 1 });
  const found = await cli('find', '--email', address, '--json');
  expect(found.json()).toMatchObject([{ request_id: id }]);
  await operator.refused('has this address already', ...words, '--yes');
  const newLink = linkIn(world.mail.mailsTo(address)[0]);
  expect(await (await confirm(newLink)).text()).toContain('Your account is activated');
});

test('a closed request mails nothing and its link is void, until reopen', async () => {
  const { id, application, link } = await completed();
  await done('partner', 'hold', 'demo', '--why', 'a leaked key');
  await eventually(
    'the processor to know the hold',
    async () => (await world.metric(processor, 'partner_ingest_partners_held')) === 1,
  );
  await done('resend', id, '--yes');
  await done('close', id, '--yes', '--why', 'sent by a thief');
  await cli('partner', 'release', 'demo');
  expect(await (await confirm(link)).text()).toContain('not valid');

  const refuses = async (): Promise<void> => {
    for (const words of [
      ['retry', id],
      ['resend', id, '--yes'],
      ['account', 'correct-email', id, `right-${application.email}`, '--yes'],
      ['bounce', '--request', id],
    ])
      expect(await cli(...words)).toMatchObject({ code: 1, stdout: '' });
  };
  await refuses();
  expect(await world.record(id)).toMatchObject({ state: 'closed', expiresAt: expect.any(Date) });
  await requests.deleteOne({ _id: id });
  await refuses();
  expect(await cli('reopen', '--state', 'closed', '--yes')).toMatchObject({ code: 2 });
  expect(mailsTo(application.email)).toBe(1);

  await done('reopen', id, '--yes', '--why', 'no thief');
  await world.recordIn('completed', id);
  expect(mailsTo(application.email)).toBe(2);
  expect(await (await confirm(link)).text()).toContain('not valid');
  const newLink = linkIn(world.mail.mailsTo(application.email)[1]);
  expect(await (await confirm(newLink)).text()).toContain('Your account is activated');
});

const now = new Date();

/** One round of expiry, `days` from now. */
async function expireIn(days: number): Promise<void> {
  const at = { ...clock, now: () => later(now, days * DAY_MS) };
  await new DueWork({ db, clock: at }).removeBodies();
  await new AccountStore({ db, clock: at }).forgetReleased(later(at.now(), -400 * DAY_MS));
}

test('a body is deleted 30 days after the end of its request, and its digest is kept', async () => {
  const finished = await submit(world, ingest, newApplication());
  const rejected = await submit(world, ingest, { ...newApplication(), ein: 'none' });
  await world.recordIn('completed', finished);
  await world.recordIn('rejected', rejected);
  const open = {
    ...(await world.record(finished))!,
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
  for (const id of [finished, rejected, open._id, dead._id])
    expect(await world.record(id)).toHaveProperty('body');
  await expireIn(31);
  for (const id of [finished, rejected]) {
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
  await done('resend', id, '--yes');
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
  await ensureIndexes(db, [...submissionIndexes, ...accountIndexes, ...trafficIndexes]);
  const expiring: Record<string, unknown> = {};
  for (const { name } of await db.listCollections().toArray()) {
    for (const index of await db.collection(name).listIndexes().toArray()) {
      if (index['key'].expiresAt !== undefined) expiring[name] = index['expireAfterSeconds'];
    }
  }
  expect(expiring).toEqual({ requests: 0, rate_limited: 0, operator_audit: 0, traffic: 0 });
});
