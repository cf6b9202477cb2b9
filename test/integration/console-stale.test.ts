/** The first page is refreshed, and once it is not, it says since when and why, and nothing is green. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { Page } from 'puppeteer-core';
import { accessFaults, textOf } from '../support/browser.ts';
import { browserOfFile } from '../support/browser-of-file.ts';
import { desksOf } from '../support/oidc.ts';
import { submit } from '../support/processing.ts';
import { startTcpProxy, type TcpProxy } from '../support/tcp-proxy.ts';
import { HEAL_HANG_MS, eventually } from '../support/wait.ts';
import { newApplication, worldOf, type InProcess } from '../support/world.ts';

const names = ['controller', 'ingest', 'processor'] as const;
const { world, ingest, ...others } = await worldOf(names, { controller: false });
const CONSOLE_PROCESSES = [ingest, ...Object.values(others)].map((one) => one.adminUrl).join(',');
const browser = await browserOfFile();
const { startDesk, logIn } = desksOf(world, browser);
let desk: InProcess;
let forwarded: TcpProxy;
let database: TcpProxy;
let [cutOff, gone, loggedOut]: Page[] = [];

beforeAll(async () => {
  desk = await world.start('console', { CONSOLE_PROCESSES });
  forwarded = await startTcpProxy(desk.url);
  database = await startTcpProxy(world.stores.mongodbUri);
  const apart = await world.start('console', { CONSOLE_PROCESSES, MONGODB_URI: database.url });
  const named = await startDesk({}, { CONSOLE_PROCESSES });
  const { page: viewer } = await logIn('viewer', '/', named);
  [cutOff, gone, loggedOut] = [await open(apart.url), await open(forwarded.url), viewer];
  // A chart with a green line has two rounds, in which something was accepted.
  for (const page of [cutOff, gone, loggedOut])
    await eventually('each page to be green', async () => {
      await submit(world, ingest, newApplication());
      const { words, lines } = await greenOf(page);
      return words > 0 && lines > 0;
    });
}, HEAL_HANG_MS);
afterAll(async () => {
  database.pass();
  await Promise.all([forwarded.close(), database.close()]);
});

/** In front of the others, because a tab that is not seen is not refreshed. */
async function open(url: string): Promise<Page> {
  const context = await browser.createBrowserContext();
  const page = await context.newPage();
  await page.goto(url);
  return page;
}

/** Words, and lines of charts, in the light scheme's green. */
function greenOf(page: Page): Promise<{ words: number; lines: number }> {
  return page.evaluate(`(() => {
    const green = 'rgb(15, 123, 74)';
    const count = (selector, property) => [...document.querySelectorAll(selector)]
      .filter((one) => one.checkVisibility() && getComputedStyle(one)[property] === green).length;
    return { words: count('main *', 'color'), lines: count('main path', 'stroke') };
  })()`) as Promise<{ words: number; lines: number }>;
}

/** Undefined while it is not shown. */
const barOf = async (page: Page): Promise<string | undefined> => {
  const bar = await page.$('#stale:not([hidden])');
  return bar?.evaluate((element) => (element as { innerText: string }).innerText);
};

async function expectStale(page: Page, why: RegExp): Promise<void> {
  const since = await readAt(page);
  const bar = await eventually(
    'a red bar with its cause',
    async () => {
      const told = await barOf(page);
      return told && why.test(told) ? told : undefined;
    },
    HEAL_HANG_MS,
  );
  expect(bar).toMatch(/^Not renewed since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC/);
  expect(await greenOf(page)).toEqual({ words: 0, lines: 0 });
  expect(await textOf(page)).not.toMatch(/Nothing/);
  expect(await accessFaults(page)).toEqual([]);
  await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: 'light' }]);
  expect(await readAt(page)).toEqual(since);
}

const readAt = (page: Page): Promise<string> =>
  page.$eval('.refresh time', (time) => time.getAttribute('datetime') ?? '');

const renewed = async (page: Page, before: string): Promise<unknown> =>
  eventually('the page to be refreshed', async () => (await readAt(page)) > before, HEAL_HANG_MS);

test('a link that keeps the focus does not end refreshing, and keeps the focus', async () => {
  const page = await open(desk.url);
  await page.focus('main a');
  const focused = (): Promise<unknown> =>
    page.evaluate('[document.activeElement.tagName, document.activeElement.getAttribute("href")]');
  const link = await focused();
  expect(link).toEqual(['A', expect.any(String)]);
  await renewed(page, await readAt(page));
  expect(await focused()).toEqual(link);
  // As after a click on a request: the tab comes back with its focus.
  const other = await page.browserContext().newPage();
  await other.goto(`${desk.url}/trail`);
  const before = await readAt(page);
  await page.bringToFront();
  await renewed(page, before);
  expect(await focused()).toEqual(link);
  expect(await barOf(page)).toBeUndefined();
});

test('only a marked text and a form that was begun wait, and the page says so', async () => {
  const page = await open(desk.url);
  await page.evaluate("getSelection().selectAllChildren(document.querySelector('h1'))");
  await eventually('it says that it waits', async () =>
    /waits while a text is marked/.test(await textOf(page)),
  );
  const before = await readAt(page);
  expect(await eventually('a red bar', () => barOf(page), HEAL_HANG_MS)).toMatch(/text is marked/);
  expect(await readAt(page)).toBe(before);
  await page.evaluate('getSelection().removeAllRanges()');
  await renewed(page, before);
  expect(await barOf(page)).toBeUndefined();

  await page.evaluate("document.querySelector('main').append(document.createElement('textarea'))");
  await page.type('textarea', 'because');
  await eventually('it says that it waits', async () =>
    /waits for the form that you have begun/.test(await textOf(page)),
  );
  const begun = await readAt(page);
  await page.$eval('textarea', (field) => ((field as { value: string }).value = ''));
  await renewed(page, begun);
});

test('a page whose console is gone says so, and recovers with it', async () => {
  forwarded.park();
  forwarded.cut();
  await expectStale(gone!, /the console does not answer/);
  forwarded.pass();
  await eventually('no bar', async () => (await barOf(gone!)) === undefined, HEAL_HANG_MS);
  expect((await greenOf(gone!)).words).toBeGreaterThan(0);
});

test('a page whose session has ended says so, and does not begin another log-in', async () => {
  const context = loggedOut!.browserContext();
  await context.deleteCookie(...(await context.cookies()));
  await expectStale(loggedOut!, /you are logged out/);
  const cookies = (await context.cookies()).map(({ name }) => name);
  expect(cookies.filter((name) => name.includes('login'))).toEqual([]);
  expect(await loggedOut!.$eval('#stale a', (link) => link.getAttribute('href'))).toBe('/');
});

test('a page whose console has lost the database says so, although it is refreshed', async () => {
  database.holdRequests();
  await eventually('a red bar', () => barOf(cutOff!), HEAL_HANG_MS);
  expect(await barOf(cutOff!)).toMatch(/MongoDB|database/);
  expect(await greenOf(cutOff!)).toEqual({ words: 0, lines: 0 });
  // The page counts from before it asked, so it is a little ahead.
  await eventually('the server to say so, too', async () => {
    const now = await cutOff!.evaluate(`fetch('/').then((answer) => answer.text())`);
    return /id="stale"[^>]*role="alert">Not renewed since/.test(String(now));
  });
  database.pass();
  await eventually('no bar', async () => (await barOf(cutOff!)) === undefined, HEAL_HANG_MS);
});

test('a console that has read nothing yet calls nothing good', async () => {
  database.holdRequests();
  const url = (await world.start('console', { CONSOLE_PROCESSES, MONGODB_URI: database.url })).url;
  const text = await textOf(await open(url));
  expect(text).not.toMatch(/Nothing|None\.|No partner/);
  expect(text).toMatch(/not been read yet/);
  database.pass();
});
