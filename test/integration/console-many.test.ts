/** Orders of many in the console: planned, confirmed, followed, stopped, and told truthfully. */
import { beforeEach, expect, test } from '@jest/globals';
import { later } from '../../internal/platform/process/clock.ts';
import { firstIdAt, timeOfId } from '../../internal/platform/stores/ids.ts';
import { OPERATOR_AUDIT } from '../../internal/self-audit/walk.ts';
import { SUBMISSIONS } from '../../internal/submission/submission.ts';
import { accessFaults, isTooWide, textOf } from '../support/browser.ts';
import { browserOfFile } from '../support/browser-of-file.ts';
import { operatorOf } from '../support/cli.ts';
import { startMongoWire } from '../support/mongo-wire.ts';
import { desksOf } from '../support/oidc.ts';
import { seatsOf, type Shown } from '../support/seats.ts';
import { eventually } from '../support/wait.ts';
import { worldOf } from '../support/world.ts';

const { world, ingest } = await worldOf(['ingest', 'processor'], { documentedRights: true });
const { completed, cli } = operatorOf({ world, ingest });
const { requests, accounts } = world.stores;
const trail = world.stores.db.collection(OPERATOR_AUDIT);
const ACTIONS = { CONSOLE_ACTIONS: 'true' };
const { startDesk, logIn } = desksOf(world, await browserOfFile());
const desk = await startDesk({}, ACTIONS);
const { seatOf, open, post } = seatsOf(desk);

let operator = seatOf('operator');
let people = 0;
beforeEach(async () => {
  await trail.deleteMany({});
  people += 1;
  operator = seatOf('operator', `olga-${people}@example.com`);
});

/** Copies of one request that was given up, which nothing works on; returns their ids. */
async function givenUp(count: number, partnerId: string): Promise<string[]> {
  const { id } = await completed();
  const { _id, ...record } = (await world.record(id))!;
  const copies = Array.from({ length: count }, (_, index) => ({
    ...record,
    _id: _id.slice(0, -6) + String(index).padStart(6, '0'),
    partnerId,
    state: 'dead_lettered' as const,
    lastError: ['the relay refuses our login', 'its workers ended without a word'][index % 2],
    history: [{ state: 'dead_lettered' as const, at: new Date(), attempt: 5 }],
    accountId: undefined,
    expiresAt: undefined,
    applicant: { ...record.applicant, email: `a${index}@${partnerId}.example`, ein: 'none' },
  }));
  await requests.insertMany(copies as never[], { ignoreUndefined: true });
  return copies.map((one) => one._id);
}

const stateOf = async (ids: readonly string[]): Promise<Record<string, number>> => {
  const found = await requests.find({ _id: { $in: [...ids] } }).toArray();
  const counts: Record<string, number> = {};
  for (const { state } of found) counts[state] = (counts[state] ?? 0) + 1;
  return counts;
};

/** The page of an order, once it is in the phase whose heading this is. */
async function until(heading: string, path: string, at = desk): Promise<Shown> {
  let shown: Shown | undefined;
  await eventually(`the page to say ${heading}`, async () => {
    shown = await open(path, operator, at);
    return shown.text.includes(`<h2>${heading}</h2>`);
  });
  return shown!;
}

/** Plans an order and returns the address of its page. */
async function plan(fields: Readonly<Record<string, string>>, seat = operator, at = desk) {
  const from = await open('/requests', seat, at);
  const { status, headers, text } = await post(
    '/orders/many',
    from,
    { why: 'ticket 1', ...fields },
    at,
  );
  return { status, path: headers['location'] ?? '', text };
}

test('in a browser, all of a list are ended: plan, count, progress in two tabs, and what changed', async () => {
  const ids = await givenUp(250, 'bulk');
  const { page } = await logIn('operator', '/requests?state=dead_lettered&partner=bulk', desk);
  expect(await accessFaults(page)).toEqual([]);
  await page.click('main details:has(#why) summary');
  await page.type('#why', 'ticket 4711');
  await Promise.all([page.waitForNavigation(), page.click('button[value=close]')]);
  await eventually('the plan', async () => /What will happen/.test(await textOf(page)));
  const path = new URL(page.url()).pathname;
  const shown = await textOf(page);
  expect(shown).toMatch(
    /^End 250 given-up requests for good\s+operator@example.com, because: ticket 4711$/m,
  );
  expect(shown).toMatch(/250 of 250 would be done; none is left out\. Nothing was/);
  expect(shown).toMatch(
    /^Given up →\s+Closed\s+125 × the relay .*\(bulk\)\n125 × its workers ended without a word \(bulk\)$/m,
  );
  expect(shown).toMatch(/^Request\s+Partner\s+Cause$/m);
  expect(await page.$eval('main form .main', ({ textContent }) => textContent)).toBe(
    'End 250 requests for good',
  );
  expect(await accessFaults(page)).toEqual([]);
  await page.setViewport({ width: 390, height: 800 });
  expect(await isTooWide(page)).toBe(false);
  await page.setViewport({ width: 1_440, height: 900 });
  expect(await stateOf(ids)).toEqual({ dead_lettered: 250 });

  // Somebody is faster with two, and another one is given up later.
  await requests.updateOne({ _id: ids[3]! }, { $set: { state: 'closed' }, $inc: { version: 1 } });
  await requests.updateOne({ _id: ids[4]! }, { $inc: { version: 1 } });
  const [newest] = await givenUp(1, 'bulk');
  await page.type('#typed', '25');
  await Promise.all([page.waitForNavigation(), page.click('main form button')]);
  expect(await textOf(page)).toContain('It must be 250.');
  const other = await page.browserContext().newPage();
  await other.goto(desk.url + path);
  await page.bringToFront();
  await page.click('#typed', { count: 3 });
  await page.type('#typed', '250');
  await Promise.all([page.waitForNavigation(), page.click('main form button')]);
  await page.reload();
  expect(await textOf(page)).toMatch(/Under way|What happened/);
  await other.bringToFront();
  await eventually('the second tab to renew itself', async () =>
    /248 done; the plan had 250/.test(await textOf(other)),
  );
  const text = await textOf(other);
  expect(text).toContain('Left or not sure, as listed: 1.');
  expect(text).toContain('changed since the plan');
  expect(text).toContain('1 is no longer on the list');
  expect(await accessFaults(other)).toEqual([]);
  expect(await stateOf(ids)).toEqual({ closed: 249, dead_lettered: 1 });
  expect(await stateOf([newest!])).toEqual({ dead_lettered: 1 });
  expect((await world.record(ids[0]!))?.history.at(-1)).toMatchObject({
    state: 'closed',
    reason: expect.stringContaining('ticket 4711'),
  });
  const order = path.split('/').at(-1);
  const noted = await trail.find({ order, ends: { $exists: false } }).toArray();
  expect(noted.reduce((sum, { count = 1 }) => sum + Number(count), 0)).toBe(248);
  expect(new Set(noted.map(({ by, why, action }) => [by, why, action].join()))).toEqual(
    new Set(['operator@example.com,ticket 4711,close']),
  );
}, 120_000);

test('an erasure is planned, confirmed by its id, and does what the command does', async () => {
  const { id, application } = await completed();
  const { page } = await logIn('operator', `/requests/${id}`, desk);
  await Promise.all([page.waitForNavigation(), page.click(`a[href="/orders/erase/${id}"]`)]);
  expect(await accessFaults(page)).toEqual([]);
  await page.type('#why', 'ticket 7');
  await Promise.all([page.waitForNavigation(), page.click('main form button')]);
  await eventually('the plan', async () => /What will happen/.test(await textOf(page)));
  const planned = await textOf(page);
  expect(planned).toMatch(/2 of 2 would be erased; .* it cannot be undone/s);
  expect(planned).toContain(id);
  expect((await world.record(id))?.erasedAt).toBeUndefined();
  await page.type('#typed', id);
  await Promise.all([page.waitForNavigation(), page.click('main form button')]);
  await eventually('its end', async () => /2 done; the plan had 2/.test(await textOf(page)));
  expect(await textOf(page)).toContain('backups still hold them');
  expect((await world.record(id))?.erasedAt).toBeInstanceOf(Date);
  expect(await accounts.findOne({ requestId: id, email: { $exists: true } })).toBeNull();
  expect((await cli('audit', '--json')).stdout).not.toContain(id);
  const entries = await trail.find().sort({ _id: 1 }).toArray();
  expect(entries.map(({ action, result, requestId }) => [action, result, requestId])).toEqual([
    ['erase without --yes', 'done', id],
    ['erase', 'begun', id],
    ['erase', 'done', id],
  ]);
  expect(JSON.stringify(entries)).not.toContain(application.email);
  await page.goto(`${desk.url}/requests/${id}`);
  expect(await textOf(page)).toMatch(/personal data erased/i);
});

test("an erasure whose request became another person's since the plan erases nobody", async () => {
  const [{ id }, other] = [await completed(), await completed()];
  const from = await open(`/orders/erase/${id}`, operator);
  const asked = await post('/orders/many', from, { why: 'ticket 7' });
  const path = asked.headers['location'] ?? '';
  const shown = await until('What will happen', path);
  // As after "account correct-email".
  const { applicant } = (await world.record(other.id))!;
  await requests.updateOne({ _id: id }, { $set: { 'applicant.email': applicant!.email! } });
  await post(path, shown, { typed: id });
  const { text } = await until('What happened', path);
  expect(text).toContain('another e-mail address since the plan');
  for (const one of [id, other.id]) expect((await world.record(one))?.erasedAt).toBeUndefined();
});

test('a plan has what is possible behind what is not, and its run ends where the plan did', async () => {
  const { id } = await completed();
  const { _id, ...record } = (await world.record(id))!;
  const at = timeOfId(id)!;
  const copies = (count: number, from: Date) =>
    Array.from({ length: count }, (_, index) => ({
      ...record,
      _id: firstIdAt('req', from).slice(0, -6) + String(index).padStart(6, '0'),
      partnerId: 'deep',
      accountId: undefined,
      applicant: {
        ...record.applicant,
        email: `${from.getTime()}-${index}@deep.example`,
        ein: 'none',
      },
    }));
  // None has an account to mail.
  const others = [...copies(5_001, later(at, -60_000)), ...copies(7_000, later(at, 1))];
  await requests.insertMany(others as never[], { ignoreUndefined: true });
  await requests.updateOne({ _id: id }, { $set: { partnerId: 'deep' } });
  const { path } = await plan({ name: 'resend', list: 'state=completed&partner=deep' });
  const shown = await until('What will happen', path);
  expect(shown.text).toContain('<b>1 of 12,002</b>');
  await requests.updateOne({ _id: id }, { $set: { state: 'closed' }, $inc: { version: 1 } });
  await post(path, shown, { typed: '1' });
  // At 100 a second, all of the list would take longer than the test waits.
  const { text } = await until('What happened', path);
  expect(text).toContain('1 is no longer on the list');
}, 180_000);

test('others may not plan, look, confirm or stop, and a forged plan does nothing', async () => {
  const ids = await givenUp(3, 'forged');
  const list = 'state=dead_lettered&partner=forged';
  for (const role of ['viewer', 'support']) {
    const seat = seatOf(role, `${role}@example.com`);
    expect((await open(`/requests?${list}`, seat)).text).not.toContain('/orders/');
    for (const name of ['close', 'x'.repeat(9_000)])
      expect((await plan({ name, list }, seat)).status).toBe(403);
    expect((await open(`/orders/erase/${ids[0]}`, seat)).status).toBe(403);
    const noted = await trail.find({ by: seat.name }).sort({ _id: 1 }).toArray();
    expect(noted.map(({ action, result }) => [action, result])).toEqual([
      ['close', 'not_done'],
      ['an order of many', 'not_done'],
    ]);
  }
  const faulty: [Readonly<Record<string, string>>, string][] = [
    [{ name: 'close', list: 'partner=forged' }, 'the list has no such order'],
    [{ name: 'resend', list }, 'the list has no such order'],
    [{ name: 'constructor', list }, 'the list has no such order'],
    [{ name: 'close', list: `${list}&email=a@b.example` }, 'the list has no such order'],
    [{ name: 'erase', request: 'everybody' }, 'the list has no such order'],
    [{ name: 'close', list, why: '' }, 'It needs a value'],
  ];
  for (const [fields, fault] of faulty)
    expect([fields, await plan(fields)]).toEqual([
      fields,
      expect.objectContaining({ status: 400, text: expect.stringContaining(fault) }),
    ]);
  const { path } = await plan({ name: 'close', list });
  const shown = await until('What will happen', path);
  const viewer = seatOf('viewer', 'viewer@example.com');
  expect((await open(path, viewer)).status).toBe(403);
  expect((await post(path, await open('/requests', viewer), { typed: '3' })).status).toBe(403);
  const otto = seatOf('operator', 'otto@example.com');
  expect((await post(path, await open(path, otto), { typed: '3' })).status).toBe(403);
  const { _csrf: _token, ...noToken } = shown.fields;
  expect((await post(path, { ...shown, fields: noToken }, { typed: '3' })).status).toBe(403);
  expect((await post(path, shown, { typed: '4' })).status).toBe(400);
  expect(await stateOf(ids)).toEqual({ dead_lettered: 3 });
  // A second tab that sends the form again changes nothing more.
  const twice = await Promise.all([
    post(path, shown, { typed: '3' }),
    post(path, shown, { typed: '3' }),
  ]);
  expect(twice.map(({ status }) => status)).toEqual([303, 303]);
  await until('What happened', path);
  expect(await stateOf(ids)).toEqual({ closed: 3 });
  expect(await trail.countDocuments({ action: 'close', result: 'begun' })).toBe(1);
});

test('a store that stalls, a stop and a console that is killed are told truthfully', async () => {
  const wire = await startMongoWire(world.stores.mongodbUri);
  try {
    const at = await startDesk({}, { ...ACTIONS, MONGODB_URI: wire.url });
    const ids = await givenUp(450, 'stall');
    const list = 'state=dead_lettered&partner=stall';
    const { path } = await plan({ name: 'close', list }, operator, at);
    const shown = await until('What will happen', path, at);
    let updates = 0;
    const held = wire.hold(({ update }) => update === SUBMISSIONS && (updates += 1) > 2);
    expect((await post(path, shown, { typed: '450' }, at)).status).toBe(303);
    await eventually('the store to stall', () => updates > 2);
    const running = await until('Under way', path, at);
    expect(running.text).toContain('<b>200 done</b>');
    const { text } = await until('What happened', path, at);
    expect(text).toContain('<b>200 done</b>; the plan had 450');
    expect(text).toContain('It is not known whether 100 more were done.');
    expect(text).not.toContain('as listed');
    expect(await stateOf(ids)).toEqual({ closed: 200, dead_lettered: 250 });
    for (const land of held) await land();
    wire.hold(() => false);
    // The plan that follows has only what is left, whatever landed.
    const left = (await stateOf(ids))['dead_lettered']!;
    const again = await plan({ name: 'close', list }, operator, at);
    const next = await until('What will happen', again.path, at);
    expect(next.text).toContain(`<b>${left} of ${left}</b>`);
    await post(again.path, next, { typed: String(left) }, at);
    await eventually('some to be done', async () =>
      /<b>[1-9]\d* done/.test((await open(again.path, operator, at)).text),
    );
    await post(again.path, next, { stop: 'stop' }, at);
    const stopped = await until('What happened', again.path, at);
    expect(stopped.text).toMatch(/Stopped by olga-\d+@example.com: what was done stays done/);
    const { closed = 0 } = await stateOf(ids);
    expect(closed).toBeLessThan(450);
    await at.close();
    // Another console has the trail alone.
    const known = await open(again.path, operator);
    expect(known.text).toContain('This console does not run this order');
    expect(known.text).toContain(`<b>${closed - (450 - left)} done</b>`);
    expect((await open(path, operator)).text).toMatch(
      /<b>200 done<\/b>, and <b class="bad">100 begun, of which it is not known/,
    );
    const unknown = await open('/orders/many/ord_01kaj6zzzzzzzzzzzzzzzzzzzz', operator);
    expect([unknown.status, unknown.text]).toEqual([
      404,
      expect.stringContaining('nothing was changed'),
    ]);
  } finally {
    await wire.close();
  }
}, 180_000);
