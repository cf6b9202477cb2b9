/** The console after a day of traffic: what pages are made for passes axe, fits, and is pictured. */
import { expect, test } from '@jest/globals';
import type { Page } from 'puppeteer-core';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { accessFaults, isTooWide, picture, textOf } from '../support/browser.ts';
import { browserOfFile } from '../support/browser-of-file.ts';
import { desksOf } from '../support/oidc.ts';
import { playDay } from '../support/played-day.ts';
import { submit } from '../support/processing.ts';
import { eventually, HEAL_HANG_MS } from '../support/wait.ts';
import { newApplication, worldOf } from '../support/world.ts';

const names = ['controller', 'ingest', 'processor'] as const;
const keys = {
  northwind: newApiKey(),
  acme: newApiKey(),
  globex: newApiKey(),
  umbrella: newApiKey(),
};
const limits: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  acme: { 'partner-ingest.io/max-per-minute': '60' },
  globex: { 'partner-ingest.io/max-per-minute': '12' },
};
const { world, ...started } = await worldOf(names, {
  controller: false,
  partners: [
    ...Object.entries(keys).map(([partner, key]) => ({
      partner,
      keys: [key],
      annotations: { ...limits[partner] },
    })),
    {
      partner: 'acme',
      name: 'partner-acme-2025',
      keys: [newApiKey()],
      annotations: { 'partner-ingest.io/not-after': '2025-12-31T00:00:00Z' },
    },
  ],
});
const playOn = await playDay(world);
const { startDesk, logIn } = desksOf(world, await browserOfFile());
const desk = await startDesk(
  {},
  {
    CONSOLE_ACTIONS: 'true',
    CONSOLE_NAME: 'payments, production',
    CONSOLE_COMMAND: 'kubectl -n apps exec -i deploy/apps-processor -- partner-ingest',
    CONSOLE_RUNBOOKS_URL: 'https://runbooks.example/',
    CONSOLE_PROCESSES: Object.values(started)
      .map(({ adminUrl }) => adminUrl)
      .join(','),
  },
);
const { page } = await logIn('operator', '/', desk);

const says = (words: RegExp, at: Page = page): Promise<unknown> =>
  eventually(`the page to say ${words}`, async () => words.test(await textOf(at)), HEAL_HANG_MS);

/** Opens it, expects no finding of axe and that it fits, and keeps its picture. */
async function shown(name: string, path?: string): Promise<void> {
  if (path !== undefined) await page.goto(desk.url + path);
  for (const width of [390, 768, 1_440]) {
    await page.setViewport({ width, height: 900 });
    const [faults, tooWide] = [await accessFaults(page), await isTooWide(page)];
    expect({ name, width, tooWide, faults }).toEqual({ name, width, tooWide: false, faults: [] });
  }
  await picture(page, name);
}

/** Plays on until Now has read what was played; until that is shown, if it `goesOn`. */
async function playedOn({ goesOn }: { readonly goesOn: boolean }): Promise<void> {
  await playOn();
  const now = new Date().toISOString();
  await page.goto(desk.url);
  await eventually(
    'Now to be read again',
    async () => {
      if (goesOn) await playOn();
      return page.$eval('#fresh', ({ dataset }, at) => (dataset['since'] ?? '') > at, now);
    },
    HEAL_HANG_MS,
  );
}

const numberIn = (words: string | undefined): number => Number(words?.replaceAll(',', ''));
const numbersOf = (selector: string): Promise<number[]> =>
  page.$$eval(selector, (all) =>
    all.map(({ innerText }) => Number(/[\d,]+/.exec(innerText)?.[0].replaceAll(',', ''))),
  );

const visible = (selector: string): Promise<unknown> =>
  page.evaluate(
    `[...document.querySelectorAll(${JSON.stringify(selector)})].filter((one) => one.checkVisibility()).length`,
  );

test('each page shows a day', async () => {
  world.mail.setFault(({ rcptTo }) =>
    rcptTo.some((to) => to.startsWith('old'))
      ? { at: 'rcpt', answer: { code: 550, message: '5.1.1 no such mailbox here' } }
      : undefined,
  );
  const wrong = {
    ...newApplication(),
    business_name: 'Harbor Bakery',
    email: 'old@harbor.example',
  };
  const again = { ...newApplication(), business_name: 'Harbor Bakery', ein: wrong.ein };
  const id = await submit(world, started.ingest, wrong, keys.acme);
  await world.recordIn('undeliverable', id);
  const duplicate = await submit(world, started.ingest, again, keys.globex);
  await world.recordIn('rejected', duplicate);
  await playedOn({ goesOn: true });
  await says(/\d rejected/);
  await shown('now-under-load');
  await shown('now-dark');
  await shown('requests', '/requests');
  await says(/newest 50 of about \d{3},\d{3}\s/);
  await shown('partner', '/partners/acme?range=today');
  await shown('request', `/requests/${id}`);
  await shown('duplicate', `/requests/${duplicate}`);
  await shown('order', `/orders/correct-email/${id}`);
  await shown('dead-letters', '/dead-letters');
  await shown('partners', '/partners');
  await page.goto(desk.url);
  await page.type('#q', 'harbor bakery');
  await Promise.all([page.waitForNavigation(), page.keyboard.press('Enter')]);
  await page.type('#q', 'north');
  await page.waitForSelector('#suggested:not([hidden])');
  await shown('search');
  await page.goto(`${desk.url}/orders/correct-email/${id}`);
  await page.type('#email', 'new@harbor.example');
  await Promise.all([page.waitForNavigation(), page.click('main form button')]);
  await page.goto(`${desk.url}/requests?state=dead_lettered`);
  await page.click('summary');
  await page.type('#why', 'ticket 512: the collection has its former rules again');
  await Promise.all([page.waitForNavigation(), page.click('button[value=retry]')]);
  await says(/What will happen/);
  await shown('plan');
  await shown('trail', '/trail');
});

test('the figures of the pages are the same, and the records are there', async () => {
  await playedOn({ goesOn: false });
  const answered = await page.$eval('.stored.aside .known', ({ innerText }) => innerText);
  const [accepted, turnedAway, faults] = answered.match(/\d[\d,]*(?= \w)/g)!.map(numberIn);
  const requests = await numbersOf('table[aria-label=Partners] td:nth-of-type(1)');
  const sum = requests.reduce((all, one) => all + one, 0);
  expect([sum, requests.length]).toEqual([accepted! + turnedAway! + faults!, 6]);
  for (const partnerId of Object.keys(keys)) {
    await page.goto(`${desk.url}/partners/${partnerId}?range=1h`);
    const [since = ''] = await page.$$eval('main > p > small time', (all) =>
      all.map(({ dateTime }) => dateTime),
    );
    const received = { partnerId, receivedAt: { $gte: new Date(since) } };
    const records = await world.records(received);
    const ofState = Object.entries(Object.groupBy(records, ({ state }) => state));
    for (const [state, some] of ofState) {
      const shownThere = await page.$$eval('table[aria-label=Outcomes] tbody tr', (rows) =>
        rows.map((row) => [row.innerHTML, row.querySelector('td')?.innerText ?? '']),
      );
      const row = shownThere.find(([html = '']) => html.includes(`title="${state}"`));
      if (state === 'malformed' || state === 'refused') expect(row).toBeUndefined();
      else expect([state, numberIn(row?.[1])]).toEqual([state, some.length]);
    }
  }
});

test('dead letters stand by cause, and each number leads to its list', async () => {
  await page.goto(`${desk.url}/dead-letters`);
  expect(await numbersOf('[aria-label=Causes] td:nth-of-type(1)')).toEqual([4, 2]);
  await Promise.all([page.waitForNavigation(), page.click('[aria-label=Causes] td a')]);
  expect(await page.$$('[aria-label=Requests] tbody tr')).toHaveLength(4);
  await page.goBack();
  await Promise.all([page.waitForNavigation(), page.click('[aria-label=Causes] td:last-child a')]);
  await page.waitForSelector('#why', { visible: true });
  await page.goto(desk.url);
  const told = await page.$$eval('.state', (all) => all.map(({ innerText }) => innerText));
  expect(told.filter((one) => one.includes('dead letters'))).toHaveLength(2);
  expect(told.join()).toMatch(
    /4 given up[^]*northwind, globex, umbrella[^]*the oldest received\s+3 d/,
  );
});

test('on a slow 3G network the first page is painted, in a time that is told', async () => {
  const slow = await page.browserContext().newPage();
  await slow.setCacheEnabled(false);
  // 400 kbit/s and 400 ms.
  await slow.emulateNetworkConditions({ download: 50_000, upload: 50_000, latency: 400 });
  await slow.goto(desk.url, { waitUntil: 'networkidle0' });
  const paint = (await slow.evaluate(`new Promise((resolve) =>
    new PerformanceObserver((list) => resolve(list.getEntries().at(-1).startTime))
      .observe({ type: 'largest-contentful-paint', buffered: true }))`)) as number;
  expect(paint).toBeGreaterThan(0);
  console.info(`largest paint on slow 3G: ${Math.round(paint)} ms`);
  await slow.close();
  await page.bringToFront();
});

test('an outage is a headline, and old figures are not shown', async () => {
  await playedOn({ goesOn: true });
  await world.mail.stopListening();
  for (let sent = 0; sent < 36; sent += 1)
    await submit(
      world,
      started.ingest,
      newApplication(),
      [keys.northwind, keys.acme, keys.northwind, keys.globex][sent % 4],
    );
  await says(/E-mails wait for the relay/);
  await says(/[1-9]\d*\s+applicants wait, the oldest/);
  expect(await page.$eval('.state h3', ({ innerText }) => innerText)).toMatch(/E-mails wait/);
  const newest = await page.$$eval('.chart .at text', (all) => all.at(-1)!.textContent);
  expect(newest).toMatch(/for the e-mail [1-9]/);
  await shown('now-in-an-outage');
  const figures = (): Promise<string[]> =>
    page.$$eval('.stat', (all) =>
      all.map((one) => (one as unknown as { innerText: string }).innerText),
    );
  expect((await figures()).join()).not.toContain('Unknown');
  await page.setOfflineMode(true);
  // Each reading is old at a time of its own.
  await page.waitForSelector('#stale.pods.stored', { timeout: HEAL_HANG_MS });
  for (const figure of await figures())
    expect(figure).toMatch(/^[^\n]+\nUnknown since \d\d:\d\d:\d\d$/);
  const times = await page.$$eval('.unknown time, #stale time', (all) =>
    all.map(({ dateTime }) => dateTime),
  );
  expect(new Set(times).size).toBe(1);
  // Nor is there a figure in a table, or what cannot be done.
  for (const gone of ['.counted td', '.legend', '.side .count', '#pause'])
    expect([gone, await visible(gone)]).toEqual([gone, 0]);
  await page.evaluate('document.activeElement.blur()');
  await shown('now-stale');
});
