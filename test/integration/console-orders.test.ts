/** An operator acts in the console, and everybody who should not is refused. */
import { beforeEach, expect, test } from '@jest/globals';
import { OPERATOR_AUDIT } from '../../internal/self-audit/walk.ts';
import { hashApiKey, keyIdOf, newApiKey } from '../../internal/partner/api-key.ts';
import { PARTNER_HOLDS } from '../../internal/partner/flags.ts';
import { loadConfig } from '../../internal/settings/settings.ts';
import { SUBMISSIONS } from '../../internal/submission/submission.ts';
import { accessFaults, isTooWide, textOf } from '../support/browser.ts';
import { browserOfFile } from '../support/browser-of-file.ts';
import { operatorOf } from '../support/cli.ts';
import { send, type Answer } from '../support/http.ts';
import { startMongoWire } from '../support/mongo-wire.ts';
import { desksOf } from '../support/oidc.ts';
import { seatsOf, type Seat, type Shown } from '../support/seats.ts';
import { eventually } from '../support/wait.ts';
import { worldOf } from '../support/world.ts';

const spare = newApiKey();
const { world, ingest } = await worldOf(['ingest', 'processor'], {
  documentedRights: true,
  partners: [{ partner: 'acme', keys: [newApiKey(), spare] }],
});
const { completed, cli } = operatorOf({ world, ingest });
const { requests, accounts } = world.stores;
const trail = world.stores.db.collection(OPERATOR_AUDIT);
const ACTIONS = { CONSOLE_ACTIONS: 'true' };
const { startDesk, logIn } = desksOf(world, await browserOfFile());
const desk = await startDesk({}, ACTIONS);

const { seatOf, open, post } = seatsOf(desk);

/** One person may post 60 forms a minute, so each test has its own. */
let operator: Seat;
let people = 0;
beforeEach(async () => {
  await trail.deleteMany({});
  people += 1;
  operator = seatOf('operator', `olga-${people}@example.com`);
});

/** Shows the plan and does it. */
async function act(path: string, more: object = {}, seat = operator, at = desk): Promise<Answer> {
  return post(path, await open(path, seat, at), { why: 'ticket 1', ...more }, at);
}

async function deadLetter(): Promise<string> {
  const { id } = await completed();
  const history = [{ state: 'dead_lettered', at: new Date(), attempt: 5 }] as const;
  await requests.updateOne(
    { _id: id },
    { $set: { state: 'dead_lettered', history }, $unset: { expiresAt: true } },
  );
  await accounts.updateOne({ requestId: id }, { $unset: { notifiedAt: true, activation: true } });
  return id;
}

test('in a browser, an operator sees the plan of a dead letter, says why, and retries it', async () => {
  const id = await deadLetter();
  const { page } = await logIn('operator', `/requests/${id}`, desk);
  await Promise.all([page.waitForNavigation(), page.click(`a[href="/orders/retry/${id}"]`)]);
  expect(await textOf(page)).toContain('Given up → E-mail waits');
  expect(await textOf(page)).toContain(
    'E-mail waits the account exists; the e-mail goes out next.',
  );
  expect(await textOf(page)).toContain('It is about 1 request, 1 account.');
  expect(await accessFaults(page)).toEqual([]);
  await page.setViewport({ width: 390, height: 800 });
  expect(await isTooWide(page)).toBe(false);
  expect((await world.record(id))?.state).toBe('dead_lettered');
  await page.type('#why', 'ticket 4711');
  await Promise.all([page.waitForNavigation(), page.click('main form button')]);
  expect(await textOf(page)).toContain('Done: ');
  expect(await accessFaults(page)).toEqual([]);
  await world.recordIn('completed', id);
  const entries = await trail.find().sort({ _id: 1 }).toArray();
  expect(entries).toMatchObject(
    ['begun', 'done'].map((result) => ({
      action: 'retry',
      requestId: id,
      by: 'operator@example.com',
      sub: 'operator',
      nameFrom: 'oidc',
      why: 'ticket 4711',
      result,
    })),
  );
  await page.reload();
  expect(await textOf(page)).toContain('Nothing was changed');
  await page.goto(`${desk.url}/partners/acme`);
  expect(await page.$('a[href="/orders/hold/acme"]')).not.toBeNull();
});

test('a request names one step; what was typed is kept, and the open page renews itself', async () => {
  const { id } = await completed();
  const other = await completed();
  const { page } = await logIn('operator', `/requests/${id}`, desk);
  const seen = await textOf(page);
  expect(await page.$$('a.main')).toHaveLength(1);
  const away = await page.browserContext().newPage();
  await away.goto(`${desk.url}/requests/${id}`);
  await away.click('details:has(.ask) summary');
  await away.type('#why', 'begun');

  await act(`/orders/bounce/${id}`, { status: '5.1.1' });
  await page.bringToFront();
  await eventually('the page to be renewed', async () => /Not delivered/.test(await textOf(page)));
  const text = await textOf(page);
  expect(text).toMatch(
    /Changed by olga-\d+@example.com [\d.]+ m?s ago: bounce\.[^]*Ask the partner for the right address\./,
  );
  expect(text).toContain('nobody has its link');
  expect([seen, text].join()).not.toMatch(/none handed over|open until[^]*open until/);
  await away.bringToFront();
  await eventually('the other page to say so', async () => /Reload$/m.test(await textOf(away)));
  expect(await away.$eval('#why', (field) => (field as { value?: string }).value)).toBe('begun');
  expect(await accessFaults(away)).toEqual([]);
  await away.close();

  await page.bringToFront();
  await Promise.all([page.waitForNavigation(), page.click('a.main')]);
  expect(page.url()).toContain(`/orders/correct-email/${id}`);
  await page.type('#email', other.application.email);
  const chosen = () =>
    page.$eval('[name=reason]:checked', (one) => (one as unknown as { value: string }).value);
  expect(await chosen()).toBe('the applicant gave a wrong address');
  await page.type('#why', 'ticket 9');
  expect(await chosen()).toBe('');
  await Promise.all([page.waitForNavigation(), page.click('main form button')]);
  expect(await textOf(page)).toContain('the address belongs to another account');
  const kept = await page.$$eval('main form input:not([type=hidden], [type=radio])', (all) =>
    all.map((field) => (field as { value?: string }).value),
  );
  expect(kept).toEqual([other.application.email, 'ticket 9']);
  expect(await accessFaults(page)).toEqual([]);

  await page.goto(`${desk.url}/orders/retry/${other.id}`);
  expect(await textOf(page)).toContain('Nothing was changed');
  await Promise.all([page.waitForNavigation(), page.click('main a')]);
  expect(page.url()).toBe(`${desk.url}/requests/${other.id}`);
});

test('each order is done, and its repeat is refused', async () => {
  const { id, application, mails } = await completed();
  const stateOf = async () => (await world.record(id))?.state;
  const twice = async (path: string, more: object = {}): Promise<string> => {
    const shown = await open(path, operator);
    expect([path, shown.status]).toEqual([path, 200]);
    const fields = { why: 'ticket 1', ...more };
    const done = await post(path, shown, fields);
    expect([path, done.status, done.text]).toEqual([
      path,
      200,
      expect.stringContaining('<b>Done:</b>'),
    ]);
    const before = await trail.countDocuments();
    const again = await post(path, shown, fields);
    expect([path, again.status]).toEqual([path, 409]);
    expect(await trail.countDocuments()).toBe(before);
    return done.text;
  };
  await twice(`/orders/resend/${id}`);
  await eventually('a second e-mail', () => mails().length === 2);
  await world.recordIn('completed', id);
  await twice(`/orders/bounce/${id}`, { status: '5.1.1' });
  expect(await stateOf()).toBe('undeliverable');
  const address = `right-${application.email}`;
  const corrected = await twice(`/orders/correct-email/${id}`, { email: address });
  expect(corrected).not.toContain(address);
  await world.recordIn('completed', id);
  expect(world.mail.mailsTo(address)).toHaveLength(1);
  expect(mails()).toHaveLength(2);

  const dead = await deadLetter();
  await twice(`/orders/close/${dead}`, { typed: dead });
  expect((await world.record(dead))?.state).toBe('closed');
  await twice(`/orders/reopen/${dead}`);
  await world.recordIn('completed', dead);
  await twice(`/orders/release-account/${dead}`, { typed: dead });
  expect(await accounts.findOne({ requestId: dead })).toHaveProperty('releasedAt');

  const holds = world.stores.db.collection<{ _id: string }>(PARTNER_HOLDS);
  await twice('/orders/hold/acme');
  expect(await holds.findOne({ _id: 'acme' })).toMatchObject({ isSet: true, by: operator.name });
  await twice('/orders/release/acme');
  await twice('/orders/disable/acme');
  await twice('/orders/enable/acme');
  const key = keyIdOf(hashApiKey(spare));
  const shown = await open(`/orders/revoke/${key}`, operator);
  expect(shown.text).toContain('1 of 2 active keys');
  await twice(`/orders/revoke/${key}`, { typed: 'acme' });
  expect((await cli('keys', 'list', '--json')).stdout).toContain('"revoked"');
  expect((await cli('audit')).code).toBe(0);
});

test('the reason, what an order takes, and for what cannot be undone its name are asked for', async () => {
  const id = await deadLetter();
  const faulty: [string, Readonly<Record<string, string>>, string][] = [
    ['close', { why: '', typed: id }, 'It needs a value'],
    ['close', { why: 'x'.repeat(501), typed: id }, 'more than 500'],
    ['close', {}, `It must be ${id}`],
    ['close', { typed: 'acme' }, `It must be ${id}`],
    ['correct-email', { email: 'nobody' }, 'not a valid e-mail address'],
    ['correct-email', {}, 'not a valid e-mail address'],
  ];
  for (const [name, fields, fault] of faulty) {
    const answer = await act(`/orders/${name}/${id}`, fields);
    expect([name, fields, answer.status, answer.text]).toEqual([
      name,
      fields,
      400,
      expect.stringContaining(fault),
    ]);
  }
  expect((await world.record(id))?.state).toBe('dead_lettered');
  expect(await trail.countDocuments()).toBe(0);
});

test('of two operators at the same moment one acts, and the applicant gets one e-mail', async () => {
  const other = seatOf('operator', 'otto@example.com');
  for (let round = 0; round < 5; round += 1) {
    const { id, mails } = await completed();
    const path = `/orders/resend/${id}`;
    const shown = [await open(path, operator), await open(path, other), await open(path, operator)];
    const answers = await Promise.all(shown.map((one) => post(path, one, { why: 'lost' })));
    expect(answers.map(({ status }) => status).toSorted((one, two) => one - two)).toEqual([
      200, 409, 409,
    ]);
    await eventually('the e-mail', () => mails().length > 1);
    await world.recordIn('completed', id);
    expect(mails()).toHaveLength(2);
    const late = await post(path, shown[1]!, { why: 'lost' });
    expect([late.status, late.text]).toEqual([
      409,
      expect.stringMatching(/it has changed since you saw the plan[^]*value="lost"/),
    ]);
    expect(mails()).toHaveLength(2);
  }
  const [one, two] = [
    await open('/orders/hold/acme', operator),
    await open('/orders/hold/acme', other),
  ];
  const holding = await Promise.all(
    [one, two].map((form) => post('/orders/hold/acme', form, { why: 'x' })),
  );
  expect(holding.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([200, 409]);
  expect(await trail.countDocuments({ action: 'partner hold', result: 'done' })).toBe(1);
  expect((await act('/orders/release/acme')).status).toBe(200);
});

test('a viewer and a support who post are refused and noted, and see no way to act', async () => {
  const id = await deadLetter();
  for (const role of ['viewer', 'support']) {
    const seat = seatOf(role, `${role}@example.com`);
    const { text, fields, cookie } = await open(`/requests/${id}`, seat);
    expect(text).not.toContain('/orders/');
    const path = `/orders/close/${id}`;
    expect((await open(path, seat)).status).toBe(403);
    const { seen } = (await open(path, operator)).fields;
    const typed = { why: 'curious', typed: id, seen: seen! };
    expect((await post(path, { fields, cookie }, typed)).status).toBe(403);
    expect(await trail.findOne({ by: seat.name })).toMatchObject({
      action: 'close',
      requestId: id,
      sub: `sub-${seat.name}`,
      result: 'not_done',
    });
  }
  expect((await world.record(id))?.state).toBe('dead_lettered');
});

test('a form of no session, of another session or person, or a forged plan does nothing', async () => {
  const id = await deadLetter();
  const path = `/orders/retry/${id}`;
  const mine = await open(path, operator);
  const [formCookie] = /form-.*/.exec(mine.cookie)!;
  const later = seatOf('operator', operator.name);
  const theirs = await open(path, seatOf('operator', 'mallory@example.com'));
  const [theirForm] = /form-.*/.exec(theirs.cookie)!;
  const why = { why: 'x' };
  const attacks: [what: string, sent: Pick<Shown, 'fields' | 'cookie'>, status: number][] = [
    ['no session', { ...mine, cookie: formCookie }, 401],
    ['no token', { ...mine, fields: { seen: mine.fields['seen']! } }, 403],
    ['no cookie of the form', { ...mine, cookie: operator.cookie }, 403],
    [
      'a later session of the same person',
      { ...mine, cookie: `${later.cookie}; ${formCookie}` },
      403,
    ],
    [
      "a planted cookie with its owner's token",
      { fields: theirs.fields, cookie: `${operator.cookie}; ${theirForm}` },
      403,
    ],
    ['a forged plan', { ...mine, fields: { ...mine.fields, seen: 'a'.repeat(64) } }, 409],
    ['no plan', { ...mine, fields: { _csrf: mine.fields['_csrf']! } }, 409],
    [
      'a plan of another order',
      {
        ...mine,
        fields: {
          ...mine.fields,
          seen: (await open(`/orders/close/${id}`, operator)).fields['seen']!,
        },
      },
      409,
    ],
  ];
  for (const [what, sent, status] of attacks)
    expect([what, (await post(path, sent, why)).status]).toEqual([what, status]);
  const query = String(new URLSearchParams({ ...mine.fields, ...why }));
  for (const method of ['GET', 'HEAD', 'PUT', 'DELETE', 'PATCH']) {
    const headers = { cookie: mine.cookie, 'x-http-method-override': 'POST' };
    await send(desk.url, { method, path: `${path}?${query}`, headers });
  }
  const json = await post(path, mine, why, desk, { 'content-type': 'application/json' });
  expect(json.status).toBeGreaterThanOrEqual(400);
  for (const wrong of ['/orders/aside/', '/orders/constructor/', '/orders/hold/'])
    expect((await post(wrong + id.replace('req', '..%2f'), mine, why)).status).toBe(404);
  expect(await trail.countDocuments()).toBe(0);
  expect((await world.record(id))?.state).toBe('dead_lettered');

  const forged = {
    host: 'evil.example',
    'x-forwarded-host': 'evil.example',
    origin: 'https://evil.example',
  };
  const answer = await post(path, mine, why, desk, { ...forged, 'x-forwarded-user': 'boss' });
  expect([answer.status, answer.text]).toEqual([200, expect.not.stringContaining('evil')]);
  expect(await trail.findOne({ result: 'done' })).toMatchObject({ by: operator.name });
});

test('a store that fails or is silent is told truthfully, and the same form does nothing twice', async () => {
  const wire = await startMongoWire(world.stores.mongodbUri);
  try {
    const at = await startDesk({}, { ...ACTIONS, MONGODB_URI: wire.url });
    const noMajority = { code: 64, codeName: 'WriteConcernTimeout', errmsg: 'no majority in time' };
    const id = await deadLetter();
    const path = `/orders/close/${id}`;
    const shown = await open(path, operator, at);
    const fields = { why: 'x', typed: id };

    wire.instead(({ insert }) =>
      insert === OPERATOR_AUDIT ? { ok: 0, code: 13, errmsg: 'not authorized' } : undefined,
    );
    const noTrail = await post(path, shown, fields, at);
    expect([noTrail.status, noTrail.text]).toEqual([
      503,
      expect.stringContaining('Nothing was changed: '),
    ]);
    expect((await world.record(id))?.state).toBe('dead_lettered');
    expect(noTrail.text).toContain('<input type="hidden" name="why" value="x">');
    wire.instead(() => undefined);

    wire.answer(({ update }, reply) =>
      update === SUBMISSIONS ? { ...reply, writeConcernError: noMajority } : undefined,
    );
    const unsure = await post(path, shown, fields, at);
    expect([unsure.status, unsure.text]).toEqual([
      503,
      expect.stringContaining('It is not known whether it was done: '),
    ]);
    wire.answer(() => undefined);
    const begun = await trail.find().toArray();
    expect(begun).toMatchObject([{ action: 'close', result: 'begun' }]);
    expect((await world.record(id))?.state).toBe('closed');
    expect((await post(path, shown, fields, at)).status).toBe(409);

    const held = wire.hold(({ update, insert }) => [update, insert].includes(PARTNER_HOLDS));
    const hold = await open('/orders/hold/demo', operator, at);
    const silent = await post('/orders/hold/demo', hold, { why: 'x' }, at);
    expect([silent.status, silent.text]).toEqual([
      503,
      expect.stringContaining('It is not known whether it was done: MongoDB'),
    ]);
    for (const land of held) await land();
    wire.hold(() => false);
    expect((await post('/orders/hold/demo', hold, { why: 'x' }, at)).status).toBe(409);
    expect((await act('/orders/release/demo', {}, operator, at)).status).toBe(200);
  } finally {
    await wire.close();
  }
}, 120_000);

test('a console that is not told to act has no operators and no orders', async () => {
  const at = await startDesk();
  expect((await open('/orders/hold/acme', operator, at)).status).toBe(404);
  const { page } = await logIn('operator', '/', at);
  expect(await textOf(page)).toContain('has neither the role');
  // Nobody would say who acts.
  const { MONGODB_URI } = world.environment;
  expect(() =>
    loadConfig('console', { ...ACTIONS, MONGODB_URI, ALLOW_INSECURE_STORES: 'true' }),
  ).toThrow('CONSOLE_ACTIONS');
});
