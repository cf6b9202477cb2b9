/** The first page lists all that is wrong, and leads to a partner that is over its limit. */
import { expect, test } from '@jest/globals';
import { hashApiKey, keyIdOf, newApiKey } from '../../internal/partner/api-key.ts';
import type { Fact } from '../../internal/submission/submission.ts';
import { accessFaults, textOf } from '../support/browser.ts';
import { browserOfFile } from '../support/browser-of-file.ts';
import { cliOf } from '../support/cli.ts';
import { send } from '../support/http.ts';
import { submit } from '../support/processing.ts';
import { newRecord } from '../support/records.ts';
import { eventually } from '../support/wait.ts';
import { newApplication, worldOf } from '../support/world.ts';

const LIMIT = 60;
const SENT = 104;
/** Before them. */
let submitted = 0;
const names = ['controller', 'ingest', 'processor'] as const;
const { world, ...processes } = await worldOf(names, {
  controller: false,
  environment: { RATE_LIMIT_MAX: String(LIMIT) },
});
const page = await (await browserOfFile()).newPage();
const desk = await world.start('console', {
  CONSOLE_PROCESSES: Object.values(processes)
    .map(({ adminUrl }) => adminUrl)
    .join(','),
});

const listed = (): Promise<string[]> =>
  page.$$eval('.problems > li', (items) => items.map((item) => item.textContent ?? ''));

async function nowLists(words: RegExp): Promise<string[]> {
  return eventually(`the list to say ${words}`, async () => {
    await page.goto(desk.url);
    const list = await listed();
    return list.some((line) => words.test(line)) && list;
  });
}
const isGood = async (): Promise<boolean> => (await page.$('p.good')) !== null;

const UNUSABLE = 'the mail server could not be used (EAUTH AUTH PLAIN 535)';
const factOf = (words: string): Fact => {
  return { code: 'relay_unusable', of: 'EAUTH AUTH PLAIN 535', words };
};

function dead(lastError: string, more: object = {}) {
  const { dueAt: _, ...record } = newRecord({ state: 'dead_lettered', lastError, ...more });
  return record;
}

test('what is put aside is counted while it is so, and leads to who did it and why', async () => {
  const expiresAt = new Date('2099-01-01');
  const { dueAt: _, ...record } = newRecord({ state: 'rejected', history: [], expiresAt });
  await world.stores.requests.insertOne(record);
  await cliOf(world)('aside', record._id, '--yes', '--why', 'a ticket');
  await eventually('the page to be good beside it', async () => {
    await page.goto(desk.url);
    return (
      /Put aside by operators, and still so: 1 found/.test(await textOf(page)) && (await isGood())
    );
  });
  expect(await textOf(page)).toContain('the self-audit found nothing that is not put aside');
  await Promise.all([page.waitForNavigation(), page.click('a[href="/trail?about=aside"]')]);
  const rows = await page.$$eval('tbody tr', (all) => all.map((one) => one.textContent ?? ''));
  expect(rows).toEqual([expect.stringMatching(/Aside history_disagrees.*a ticket.*Done/s)]);
  await world.stores.requests.deleteOne({ _id: record._id });
  await eventually('no word of it', async () => {
    await page.goto(desk.url);
    return !/Put aside/.test(await textOf(page)) && (await isGood());
  });
});

test('a dead test is no fault, and each kind of dead letters is', async () => {
  await world.stores.requests.insertMany([
    dead('a test', { test: true }),
    dead('the disk is full'),
    // An older version has written the last error since.
    dead('the disk is full', { lastFact: factOf('other words') }),
    ...Array.from({ length: 255 }, () => dead('the relay refuses our sender')),
    // Of a version without codes, of ours, and of one with other words.
    dead(UNUSABLE),
    ...[UNUSABLE, 'other words'].map((words) => dead(words, { lastFact: factOf(words) })),
  ]);
  const list = await nowLists(/given up/);
  expect(list).toEqual([
    expect.stringMatching(
      /^Needs a decision 255 given up .*: the relay refuses our sender\s+demo255 requeststhe oldest received .+ agosuch\sas\s01/,
    ),
    expect.stringMatching(
      /^Needs a decision 3 given up .*: the relay refuses our login \(EAUTH AUTH PLAIN 535\)\s+demo3 requeststhe oldest received .+ agosuch\sas\s01/,
    ),
    expect.stringMatching(
      /^Needs a decision 2 given up .*: the disk is full\s+demo2 requeststhe oldest received .+ agosuch\sas\s01/,
    ),
  ]);
  expect(await isGood()).toBe(false);
  expect(await textOf(page)).not.toMatch(/Nothing/);
});

test('what a request waits for is what its line waits for', async () => {
  const { ingest } = processes;
  const pageOf = async (id: string): Promise<string> => {
    await page.goto(`${desk.url}/requests/${id}`);
    return textOf(page);
  };
  await world.mail.stopListening();
  const id = await submit(world, ingest, newApplication());
  submitted += 1;
  await world.recordIn('account_created', id);
  await eventually('its page to name the relay', async () => {
    const text = await pageOf(id);
    expect(text).not.toContain('a free');
    return (
      /Waits for\s+the relay, which is away at least since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC/.test(
        text,
      ) && /once the relay is back; Relay at \S+: the connection is refused/.test(text)
    );
  });
  const dueAt = new Date('2099-01-01T12:04:05Z');
  await world.mail.listenAgain();
  await world.recordIn('completed', id);
  await eventually('no fault of the relay', async () => {
    await page.goto(desk.url);
    return !(await listed()).some((line) => /relay\b.*processors/.test(line));
  });
  const later = newRecord({ dueAt, attempts: 1, version: 2 });
  await world.stores.requests.insertOne(later);
  expect(await pageOf(later._id)).toMatch(/Waits for\s+a retry at 2099-01-01 12:04:05 UTC/);
  await world.stores.requests.deleteOne({ _id: later._id });
});

test('half of our requests fail: two clicks lead to the 429', async () => {
  await send(processes.ingest.url, { key: newApiKey(), body: '{}' });
  const late: string[] = [];
  for (let sent = 0; sent < SENT; sent += 1) {
    const body = JSON.stringify(newApplication());
    const { status, headers } = await send(processes.ingest.url, { key: world.key, body });
    if (status === 429) late.push(String(headers['x-request-id']));
  }
  expect(late.length).toBeGreaterThanOrEqual(SENT - LIMIT);
  const all = SENT + submitted;
  const share = `${((100 * late.length) / all).toFixed(1)} %`;
  const list = await nowLists(
    new RegExp(`${late.length} of ${all} requests of the last 5 minutes were answered 429`),
  );
  // What stops something stands above.
  const weights = list.map((line) => line.split(' ')[0]);
  const kinds = ['Fault', 'Needs', 'Warning'];
  expect(weights).toEqual(expect.arrayContaining(['Needs', 'Warning']));
  const ranks = weights.map((one) => kinds.indexOf(one!));
  expect(ranks).toEqual(ranks.toSorted((one, other) => one - other));
  const rows = () => page.$$eval('tbody tr', (found) => found.map((one) => one.textContent ?? ''));
  await eventually('the unknown key among what was turned away', async () => {
    await page.goto(desk.url);
    return (await rows()).some((row) => row.startsWith('401nobody known–127.0.0.1'));
  });
  expect(await rows()).toContainEqual(
    expect.stringMatching(
      `demo${all}${late.length}${share}${late.length} over the limit \\(429\\)`,
    ),
  );
  expect(await accessFaults(page)).toEqual([]);
  await Promise.all([
    page.waitForNavigation(),
    page.evaluate("document.querySelector('.problems .warn a').click()"),
  ]);
  expect(page.url()).toBe(`${desk.url}/partners/demo`);
  const text = await textOf(page);
  expect(await page.$eval('.stat dd', (one) => one.textContent.trim())).toBe(String(all));
  expect(text.split(/\s+/).join(' ')).toContain(
    `429 over the limit of its address or of the partner ${keyIdOf(hashApiKey(world.key))} at 127.0.0.1: ${late.length}, over ${LIMIT} a minute of this address ${late.length} ${share}`,
  );
  expect(await accessFaults(page)).toEqual([]);

  // Also those far beyond the limit.
  await eventually('the count of the last one', async () => {
    await page.goto(`${desk.url}/requests/${late.at(-1)}`);
    return (await textOf(page)).includes(
      `answered 429: ${LIMIT} a minute of this address; not recorded, only counted: key ${keyIdOf(hashApiKey(world.key))} of partner demo at 127.0.0.1`,
    );
  });
});
