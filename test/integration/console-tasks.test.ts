/** What people do most, in clicks and typed fields, by mouse, by keys, and without a script. */
import { beforeAll, expect, test } from '@jest/globals';
import type { Page } from 'puppeteer-core';
import { DAY_MS } from '../../internal/platform/process/clock.ts';
import type { Loop } from '../../internal/platform/process/loop.ts';
import { newId, referenceOf } from '../../internal/platform/stores/ids.ts';
import { TrafficCounter } from '../../internal/traffic/traffic-counter.ts';
import { accessFaults, isTooWide, textOf } from '../support/browser.ts';
import { browserOfFile } from '../support/browser-of-file.ts';
import { operatorOf } from '../support/cli.ts';
import { desksOf } from '../support/oidc.ts';
import { newRecord } from '../support/records.ts';
import { seatsOf } from '../support/seats.ts';
import { eventually } from '../support/wait.ts';
import { newApplication, worldOf } from '../support/world.ts';

const { world, ingest } = await worldOf(['ingest', 'processor'], { documentedRights: true });
const { completed } = operatorOf({ world, ingest });
const browser = await browserOfFile();
const { startDesk, logIn } = desksOf(world, browser);
const desk = await startDesk({}, { CONSOLE_ACTIONS: 'true' });
const { seatOf, open, post } = seatsOf(desk);

/** A person at a page, whose clicks and fields are counted. */
let page: Page;
const counted = { clicks: 0, fields: 0 };

async function click(selector: string): Promise<void> {
  counted.clicks += 1;
  await page.click(selector);
}
async function follow(selector: string): Promise<void> {
  await Promise.all([page.waitForNavigation(), click(selector)]);
}
async function type(selector: string, text: string): Promise<void> {
  counted.fields += 1;
  await page.type(selector, text);
}
/** The search box, reached by its key and sent by Enter. */
async function search(text: string): Promise<void> {
  await page.keyboard.press('/');
  counted.fields += 1;
  await page.keyboard.sendCharacter(text);
  await Promise.all([page.waitForNavigation(), page.keyboard.press('Enter')]);
}

let request: string;
let rejected: string[];
beforeAll(async () => {
  request = (await completed()).id;
  const at = new Date(Math.floor(Date.now() / DAY_MS) * DAY_MS - DAY_MS / 2);
  const loops = { start: () => ({ stop: () => Promise.resolve() }) as unknown as Loop };
  const clock = { now: () => at, monotonicMs: () => 0 };
  const counter = new TrafficCounter({ db: world.stores.db, clock, loops });
  const reasons = [{ field: 'ein', code: 'duplicate_ein', message: 'ein is taken' }] as const;
  const records = Array.from({ length: 7 }, () => {
    const { dueAt: _, ...record } = newRecord({ receivedAt: at, partnerId: 'demo' });
    const state = 'rejected' as const;
    return { ...record, _id: newId('req', at), version: 1, state, reasons: [...reasons] };
  });
  await world.stores.requests.insertMany(records);
  for (const { receivedAt } of records) {
    counter.answered('demo', 'answers', 202);
    counter.ended('demo', { receivedAt, history: [] }, 'rejected', [...reasons]);
  }
  await counter.close();
  rejected = records.map(({ _id }) => _id);
  ({ page } = await logIn('operator', '/', desk));
});

interface Task {
  readonly clicks: number;
  readonly fields: number;
  readonly from: () => string;
  readonly steps: () => Promise<void>;
  readonly until: () => RegExp;
}

const tasks: Readonly<Record<string, Task>> = {
  'an id by telephone: its letters in groups, and Enter': {
    clicks: 0,
    fields: 1,
    from: () => '/',
    steps: () => search(referenceOf(request).toLowerCase().replaceAll('-', ' ')),
    until: () => new RegExp(`${request}[^]*What happened`),
  },
  'an id whose beginning is known: the suggestion': {
    clicks: 1,
    fields: 1,
    from: () => '/trail',
    steps: async () => {
      await type('#q', request.slice(0, 24));
      await page.waitForSelector('#suggested a');
      await follow('#suggested a');
    },
    until: () => new RegExp(`${request}[^]*What happened`),
  },
  'a partner by a part of its name: the suggestion, by keys': {
    clicks: 0,
    fields: 1,
    from: () => '/trail',
    steps: async () => {
      await type('#q', 'EM');
      await page.waitForSelector('#suggested a');
      await page.keyboard.press('ArrowDown');
      await Promise.all([page.waitForNavigation(), page.keyboard.press('Enter')]);
    },
    until: () => /Partner demo/,
  },
  "why were yesterday's rejected: the partner, then the day": {
    clicks: 2,
    fields: 0,
    from: () => '/',
    steps: async () => {
      await follow('a[href="/partners/demo"]');
      await follow('.seg a[href*="yesterday"]');
    },
    until: () => /Rejected\n100.0 %[^]*EIN has an account already\s+7 100.0 %/,
  },
  'which were they: their number, one click on': {
    clicks: 1,
    fields: 0,
    from: () => '/partners/demo?range=yesterday',
    steps: () => follow('[aria-label=Reasons] a'),
    until: () => new RegExp(rejected.at(-1)!.slice(4, 18)),
  },
  'a wrong address corrected: the order and its form, whose likeliest reason is picked': {
    clicks: 2,
    fields: 1,
    from: () => `/requests/${request}`,
    steps: async () => {
      await follow(`a[href="/orders/correct-email/${request}"]`);
      await type('#email', newApplication().email);
      await follow('main form button');
      const [entry] = await world.trail();
      expect(entry).toMatchObject({ why: 'the applicant gave a wrong address' });
    },
    until: () => /Done: [^]*the old link is void/,
  },
};

test.each(Object.entries(tasks))('%s', async (_, { clicks, fields, from, steps, until }) => {
  // The console knows its partners once they were read.
  await eventually('the partners', async () => {
    await page.goto(desk.url + from());
    return (await open('/partners', seatOf('operator'))).text.includes('demo');
  });
  Object.assign(counted, { clicks: 0, fields: 0 });
  await steps();
  expect(await textOf(page)).toMatch(until());
  expect(counted).toEqual({ clicks, fields });
});

test('suggestions are few, read nobody and note nothing, and a viewer gets no parts', async () => {
  const before = await world.trail();
  const kindsFor = async (role: string, text: string): Promise<string[]> => {
    const seat = seatOf(role);
    const { fields, cookie } = await open('/find', seat);
    const answer = await post('/find/suggest', { fields, cookie }, { q: text });
    expect(answer.status).toBe(200);
    const words = answer.text.replaceAll(/<svg[^]*?<\/svg>|<(?!li)[^>]*>/g, '').split('<li>');
    return words.map((one) => one.trim()).filter(Boolean);
  };
  expect(await kindsFor('support', 'bakery.example')).toEqual([
    'Search as domain of e-mail addresses noted in the trail',
    'Search as business name noted in the trail',
  ]);
  expect(await kindsFor('viewer', 'bakery.example')).toEqual([
    'Search as whole business name noted in the trail',
  ]);
  expect(await kindsFor('support', 'ada@example.com')).toEqual([
    'Search as e-mail address noted in the trail',
  ]);
  expect(await kindsFor('support', '<b>')).toEqual(['Search as business name noted in the trail']);
  expect(await kindsFor('support', '12-3456789')).toEqual(['Search as EIN noted in the trail']);
  // Seven ids of one time begin alike.
  expect((await kindsFor('support', rejected[0]!.slice(0, 14))).length).toBeLessThanOrEqual(6);
  expect(await world.trail()).toHaveLength(before.length);
  const noToken = await post('/find/suggest', { fields: {}, cookie: seatOf('support').cookie });
  expect(noToken.status).toBe(403);
  await page.goto(`${desk.url}/trail`);
  await page.type('#q', 'ad');
  await page.waitForSelector('#suggested li');
  expect(await accessFaults(page)).toEqual([]);
  await page.setViewport({ width: 390, height: 800 });
  expect(await isTooWide(page)).toBe(false);
  await page.keyboard.press('Escape');
  expect(await page.$('#suggested li')).toBeNull();
  await page.type('#q', 'ad');
  await page.waitForSelector('#suggested li');
  await page.focus('main');
  expect(await page.$('#suggested li')).toBeNull();
  await page.setViewport({ width: 1_440, height: 900 });
});

test('the numbers of a list are of its time, and one of any time has none', async () => {
  const chips = async (range: string): Promise<string[]> => {
    await page.goto(`${desk.url}/requests`);
    await page.goto(await page.$eval(`.seg a[href*="since=${range}"]`, ({ href }) => href));
    expect(await page.$eval('.seg [aria-current]', (one) => one.getAttribute('href'))).toContain(
      range,
    );
    return page.$$eval('.chips > li', (all) =>
      all.map(({ innerText }) => innerText.trim().replaceAll(/\s+/g, ' ')),
    );
  };
  expect(await chips('7d')).toEqual(expect.arrayContaining(['Rejected 7']));
  expect(await textOf(page)).toMatch(/^\d requests$/m);
  expect((await chips('7d'))[0]).toBe('All filters …');
  expect(await chips('any')).toEqual(expect.arrayContaining(['Rejected']));
  // With another filter, any time needs no word in the address.
  await page.goto(`${desk.url}/requests?since=any&state=rejected`);
  expect(page.url()).toBe(`${desk.url}/requests?state=rejected`);
  expect(await page.$$eval('thead th', (all) => all.map((one) => one.textContent))).toEqual([
    'Request',
    'Received',
    'Partner',
    'Why',
  ]);
});

test('without a script, a list is narrowed by pickers with counts and kept under a name', async () => {
  await page.setJavaScriptEnabled(false);
  await page.goto(`${desk.url}/requests?since=7d`);
  await page.click('[popovertarget=narrow]');
  const options = await page.$$eval('#state option', (all) => all.map((one) => one.textContent));
  expect(options).toContain('Rejected (7)');
  expect(
    await page.$$eval('#reason-list option', (all) => all.map((one) => one.textContent)),
  ).toEqual(['EIN has an account already (7)']);
  expect(await page.$$eval('#partner option', (all) => all.map((one) => one.textContent))).toEqual(
    expect.arrayContaining(['any', 'demo']),
  );
  await page.select('#partner', 'demo');
  await page.select('#state', 'rejected');
  await Promise.all([page.waitForNavigation(), page.click('#narrow form button')]);
  const list = `${desk.url}/requests?partner=demo&state=rejected&since=7d`;
  expect(page.url()).toBe(list);
  for (const name of ['<b>Monday</b>', 'of demo', 'of demo']) {
    await page.click('[popovertarget=keep]');
    await page.type('#name', name);
    await Promise.all([page.waitForNavigation(), page.click('#keep button')]);
    expect(page.url()).toBe(list);
  }
  const mine = () => page.$$eval('.view a', (all) => all.map((one) => one.textContent));
  expect(await mine()).toEqual(['<b>Monday</b>', 'of demo']);
  await page.goto(`${desk.url}/requests`);
  await Promise.all([page.waitForNavigation(), page.click('.chips > :last-child a')]);
  expect(page.url()).toBe(list);
  await Promise.all([page.waitForNavigation(), page.click('.view ~ .view button')]);
  expect(await mine()).toEqual(['<b>Monday</b>']);
  await page.setJavaScriptEnabled(true);
  await page.goto(list);
  await page.click('[popovertarget=narrow]');
  expect(await accessFaults(page)).toEqual([]);
  // A name in another case is the partner's.
  await page.goto(`${desk.url}/requests?partner=DEMO`);
  expect(page.url()).toBe(`${desk.url}/requests?partner=demo`);
  const seat = seatOf('viewer');
  // Who may not reveal sees one letter of the name.
  const titles = [seat, seatOf('support')].map(async (who) =>
    /<h1>([^<]+?) </.exec((await open(`/requests/${request}`, who)).text)?.[1]?.trim(),
  );
  expect(await Promise.all(titles)).toEqual(['B•••', expect.stringMatching(/^B••• \d•••$/)]);
  const form = await open('/requests', seat);
  const faulty: [Readonly<Record<string, string>>, number][] = [
    [{ name: 'x', query: 'email=ada@example.com' }, 400],
    [{ name: '', query: 'state=rejected' }, 400],
    [{ name: 'x'.repeat(41), query: 'state=rejected' }, 400],
    [{ name: 'x', query: `state=rejected&reason=${'y'.repeat(990)}` }, 303],
    [{ name: 'x', query: `state=rejected&reason=${'ü'.repeat(990)}` }, 409],
  ];
  for (const [fields, status] of faulty)
    expect([fields, (await post('/requests/views', form, fields)).status]).toEqual([
      fields,
      status,
    ]);
});
