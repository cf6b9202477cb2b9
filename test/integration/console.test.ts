/** The console in a real browser, also under load and while a store or the relay is away. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { setInterval } from 'node:timers/promises';
import type { ServiceProcess } from '../../deploy/local/processes.ts';
import { referenceOf } from '../../internal/platform/stores/ids.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { accessFaults, isTooWide, textOf } from '../support/browser.ts';
import { browserOfFile } from '../support/browser-of-file.ts';
import { send } from '../support/http.ts';
import { heal, openOwnWorld, submit, type OwnWorld } from '../support/processing.ts';
import { HEAL_HANG_MS, eventually } from '../support/wait.ts';
import { newApplication, type World } from '../support/world.ts';

/** As users have it: 50 a second. */
const SEND_EVERY_MS = 20;
const CANARY = 'canarymailbox';
const application = {
  ...newApplication(),
  email: `${CANARY}@canary.example`,
  business_name: 'CanaryName Ltd',
};
const hostile = {
  ...newApplication(),
  business_name: `<script>alert(1)</script>\u{202e}${'w'.repeat(150)}`,
};
const COMMAND = 'kubectl -n apps exec -i deploy/apps-processor -- partner-ingest';
const endless = { ...newApplication(), business_name: 'w'.repeat(1_000), email: 'w'.repeat(1_000) };

const REVEAL = 'details:has(.ask) summary';

let own: OwnWorld;
let world: World;
const browser = await browserOfFile();
const page = await browser.newPage();
let processes: ServiceProcess[];
let desk: ServiceProcess;
let ids: string[];
const shown: string[] = [];
const dialogs: string[] = [];

beforeAll(async () => {
  own = await openOwnWorld({ controller: false });
  world = own.world;
  const names = ['controller', 'ingest', 'processor'] as const;
  processes = await Promise.all(names.map((name) => world.spawn(name)));
  const ingest = processes[1]!;
  desk = await world.spawn('console', {
    CONSOLE_COMMAND: COMMAND,
    CONSOLE_PROCESSES: processes.map(({ adminUrl }) => adminUrl).join(','),
  });
  page.on('dialog', (dialog) => {
    dialogs.push(dialog.message());
    void dialog.dismiss();
  });
  ids = [await submit(world, ingest, application), await submit(world, ingest, hostile)];
  for (const id of ids) await world.recordIn('completed', id);
  ids.push(await submit(world, ingest, application), await submit(world, ingest, endless));
  for (const id of ids.slice(2)) await world.recordIn('rejected', id);
});
afterAll(() => own.close());

/** Sends applications while `work` goes on. */
async function underLoad<T>(work: () => Promise<T>): Promise<T> {
  const loading = new AbortController();
  const load = (async () => {
    const ticks = setInterval(SEND_EVERY_MS, undefined, { signal: loading.signal });
    let sent = 0;
    for await (const _ of ticks) {
      sent += 1;
      const body = sent % 25 === 0 ? 'nonsense' : JSON.stringify(newApplication());
      await send(processes[1]!.url, { key: world.key, body });
    }
  })().catch(() => undefined);
  try {
    return await work();
  } finally {
    loading.abort();
    await load;
  }
}

async function open(path: string): Promise<string> {
  await page.goto(desk.url + path);
  shown.push(await page.content());
  return textOf(page);
}
/** Returns what the page then says. */
async function search(text: string): Promise<string> {
  await page.keyboard.press('Escape');
  await page.focus('body');
  await page.keyboard.press('/');
  await page.keyboard.sendCharacter(text);
  await Promise.all([page.waitForNavigation(), page.keyboard.press('Enter')]);
  return textOf(page);
}
/** What stands marked in the rows. */
const marks = (): Promise<(string | null)[]> =>
  page.$$eval('td mark', (all) => all.map((one) => one.textContent));
const nowSays = (words: RegExp): Promise<unknown> =>
  eventually(
    `the first page to say ${words}`,
    async () => words.test(await open('/')),
    HEAL_HANG_MS,
  );

const paths = [
  '/',
  '/find',
  '/dead-letters',
  '/partners',
  '/partners/demo',
  '/partners/demo?period=7d',
  '/requests?partner=demo',
  '/trail',
  '/requests/nothing',
];
const everyPath = (): string[] => [...paths, ...ids.map((id) => `/requests/${id}`)];

/** Expects no finding of axe, and that nothing is wider than the page. */
async function passesAxe(opened: readonly string[], widths = [360]): Promise<void> {
  for (const path of opened) {
    await open(path);
    for (const width of widths) {
      await page.setViewport({ width, height: 800 });
      const [faults, tooWide] = [await accessFaults(page), await isTooWide(page)];
      expect({ path, width, tooWide, faults }).toEqual({ path, width, tooWide: false, faults: [] });
    }
  }
}

/** All pages at once, without a browser: their status, and what they say. */
async function everyPage(): Promise<{ path: string; status: number; text: string }[]> {
  const answers = everyPath().map(async (path) => {
    const answer = await fetch(desk.url + path);
    const text = await answer.text();
    shown.push(text);
    return { path, status: answer.status, text };
  });
  return Promise.all(answers);
}

async function allAnswer(): Promise<void> {
  const faulty = (await everyPage()).filter(({ path, status }) => {
    return status !== (path === '/requests/nothing' ? 404 : 200);
  });
  expect(faulty).toEqual([]);
}

test('under load, the first page counts what is accepted', () =>
  underLoad(async () => {
    await nowSays(/Accepted \(202\)\n[1-9]/);
  }));

test('each page passes axe in both colour schemes and fits each width', () =>
  passesAxe(everyPath(), [360, 768, 1_000, 1_440]));

test('a search by e-mail is noted and leaves no address in URL or page', async () => {
  await open('/trail');
  shown.push(await search(application.email));
  expect(page.url()).toBe(`${desk.url}/find`);
  const links = await page.$$eval('th a', (found) =>
    found.map((link) => [link.getAttribute('href'), link.getAttribute('target')]),
  );
  expect(links).toEqual([ids[2], ids[0]].map((id) => [`/requests/${id}`, '_blank']));
  expect(await marks()).toEqual(['c•••@c•••.example', 'c•••@c•••.example']);
  const [entry] = await world.trail();
  expect(entry).toMatchObject({ action: 'find --email', nameFrom: 'console' });
});

test('whatever of an id is heard, pasted or cut off leads to its request in one step', async () => {
  const id = ids[0]!;
  const letters = id.slice(4);
  const [account] = await world.accounts({ requestId: id });
  const reference = referenceOf(id);
  const texts = [
    id,
    account!._id,
    letters,
    id.toUpperCase(),
    reference,
    reference.toLowerCase().replaceAll('-', ''),
    // Typed by hand: O for 0, and blanks between groups.
    reference.replaceAll('0', 'o').replaceAll('1', 'l').replaceAll('-', ' '),
    `REQ ${letters.replaceAll(/(.{5})/g, '$1 ')}`,
    id.slice(0, 20),
    letters.slice(0, 20),
    letters.slice(0, 14),
    account!._id.slice(0, 20),
    `see https://console.example/requests/${id}.`,
    `{"message":"accepted","data":{"request_id":"${id}"}}`,
  ];
  for (const text of texts) {
    await open('/trail');
    await search(text);
    expect([text, page.url()]).toEqual([text, `${desk.url}/requests/${id}`]);
  }
  // A letter misheard at the end.
  const wrong = `${id.slice(0, -2)}zz`;
  expect(await search(wrong)).toMatch(/There is no request req_[^]*begin like it/);
  expect(
    await page.$$eval('th a', (found) => found.map((link) => link.getAttribute('title'))),
  ).toEqual([id]);
  expect(await search('req_01')).toContain('at least its first eight letters');
  expect(await search('req_01arz3ndektsv4rrffq69g5fax')).toMatch(/it was given out 2016-/);
});

test('an EIN, a domain and a name lead to their requests, and a partner to its page', async () => {
  const one = { ...newApplication(), email: 'zoe@bakery-nine.example' };
  const name = 'Café Zoë Brød';
  const id = await submit(world, processes[1]!, { ...one, business_name: name });
  await world.recordIn('completed', id);
  const texts = [
    one.ein,
    `${one.ein.slice(0, 2)}-${one.ein.slice(2)}`,
    'bakery-nine.example',
    '@Bakery-Nine.example',
    'zoe@bakery-nine',
    `Zoë <${one.email.toUpperCase()}>`,
    name,
    'cafe zoe brod',
    'ZOË BR',
    'cafe\u0301 zoe\u0308',
  ];
  for (const text of texts) {
    await open('/');
    shown.push(await search(text));
    expect([text, page.url()]).toEqual([text, `${desk.url}/requests/${id}`]);
  }
  const noted = (await world.trail()).slice(0, texts.length).toReversed();
  expect(noted.map(({ action }) => action.replace('find --', '')).join(' ')).toBe(
    'ein ein domain domain emailStart email name name name name',
  );
  // Of the business only the word that matched is marked, and it stays masked.
  shown.push(await search('canary'));
  expect(
    await page.$$eval('tr:has(mark) td:nth-of-type(4)', (all) =>
      all.map(({ innerHTML }) => innerHTML),
    ),
  ).toEqual(Array(2).fill('<span class="nowrap"><mark>C•••</mark> L•••</span>'));
  await search('DEMO');
  expect(page.url()).toBe(`${desk.url}/partners/demo`);
  const nothing = await search('Nobody & Daughters');
  expect(nothing).toMatch(/Read as a business name[^]*Nothing\./);
  expect(nothing).not.toMatch(/Daughters|--/);
});

test('the page of a test says so at its top', async () => {
  await world.stores.requests.updateOne({ _id: ids[3]! }, { $set: { test: true } });
  await open(`/requests/${ids[3]}`);
  expect(await page.$eval('h1', (heading) => heading.textContent)).toMatch(/^TEST /);
  expect(await page.$('.case a.main, .case p > .command')).toBeNull();
  expect(await page.$eval('#changed', (line) => line.getClientRects().length)).toBe(0);
  await open(`/requests/${ids[0]}`);
  expect(await page.$eval('h1', (heading) => heading.textContent)).toBe('C••• L••• Completed');
});

test('a duplicate leads to the other request, and its row and CSV name the field', async () => {
  const text = await open(`/requests/${ids[2]}`);
  expect(text).toMatch(
    /Next\s+E-mail address has an account already\.\s+EIN has an account already\.\s+Help the applicant at the request that has the account\.\s+Open the other request/,
  );
  expect(text).toMatch(/Partner sees\s+rejected: An account with this e-mail/);
  expect(text).not.toMatch(/corrected application|erased before its end/);
  await Promise.all([page.waitForNavigation(), page.click('a.main')]);
  expect(page.url()).toBe(`${desk.url}/requests/${ids[0]}`);

  const list = '/requests?partner=demo&state=rejected';
  expect(await open(list)).toContain('E-mail address has an account already');
  expect(await page.$('[title*="email: duplicate_email"]')).not.toBeNull();
  const csv = await fetch(desk.url + list.replace('?', '.csv?'));
  expect(await csv.text()).toContain('E-mail address has an account already');
});

test('a row leads to its request as a whole, and from there on and back', async () => {
  await open('/requests?partner=demo&state=rejected');
  expect(await page.$$eval('.chip.on', (all) => all.map(({ textContent }) => textContent))).toEqual(
    ['partner: demo ×', 'state: Rejected ×'],
  );
  await Promise.all([page.waitForNavigation(), page.click('tbody tr:first-child td:last-child')]);
  const found = (await page.$eval('code.command', (id) => id.textContent)) ?? '';
  expect(page.url()).toContain(`/requests/${found}?list=`);
  const [, at, of] = /(\d+) of (\d+) on this page of the list/.exec(await textOf(page)) ?? [];
  expect([at, Number(of) > 1]).toEqual(['1', true]);
  expect(await page.$('a[rel=prev]')).toBeNull();
  await Promise.all([page.waitForNavigation(), page.keyboard.press('j')]);
  expect(await textOf(page)).toContain(`2 of ${of} on this page`);
  await Promise.all([page.waitForNavigation(), page.keyboard.press('k')]);
  expect(page.url()).toContain(found);
  expect(await accessFaults(page)).toEqual([]);

  await Promise.all([page.waitForNavigation(), page.click('.crumbs a[href*="state=rejected"]')]);
  await page.keyboard.press('j');
  expect(await page.evaluate('document.activeElement.title')).toBe(found);
  await Promise.all([page.waitForNavigation(), page.click('[aria-label$="filter state"]')]);
  expect(page.url()).toBe(`${desk.url}/requests?partner=demo`);
});

test('a command is shown as it is run here, and a button copies it', async () => {
  await browser
    .defaultBrowserContext()
    .overridePermissions(desk.url, ['clipboard-read', 'clipboard-write']);
  await open(`/requests/${ids[0]}`);
  await page.$eval('details:has(.offers)', (folded) => folded.setAttribute('open', ''));
  const first = '.offers code.command + button';
  await page.click(first);
  await eventually('the copy', () =>
    page.$eval(first, (button) => button.textContent === 'Copied'),
  );
  const copied = await page.evaluate('navigator.clipboard.readText()');
  expect(copied).toMatch(`${COMMAND} `);
  expect(copied).toContain(ids[0]);
  const names = await page.$$eval('code.command + button', (all) =>
    all.map((button) => button.getAttribute('aria-label')),
  );
  expect(names).toContain('Copied the command resend');
  expect(new Set(names).size).toBe(names.length);
  expect(await open('/partners/demo')).toContain(`${COMMAND} partner hold demo`);
});

test('a reveal needs a reason, and is noted before it shows', async () => {
  await open(`/requests/${ids[0]}`);
  // Folded, and read without a script.
  expect(await page.$eval('#why', (field) => field.checkVisibility())).toBe(false);
  await page.click(REVEAL);
  await page.type('#why', ' ');
  await Promise.all([page.waitForNavigation(), page.click('main form button')]);
  shown.push(await page.content());
  expect(await textOf(page)).toContain('It needs a value.');
  await page.type('#why', 'ticket 4711');
  await Promise.all([page.waitForNavigation(), page.click('main form button')]);
  expect(await textOf(page)).toContain(application.email);
  expect((await world.trail())[0]).toMatchObject({
    action: 'show --reveal',
    requestId: ids[0],
    why: 'ticket 4711',
    nameFrom: 'console',
    by: 'somebody',
  });
  expect(await open('/trail')).toContain('ticket 4711');
});

test('without a script, charts are drawn; what pages load is small, kept and known again', async () => {
  const plain = await browser.newPage();
  await plain.setJavaScriptEnabled(false);
  await plain.goto(desk.url);
  const drawn = await plain.$$eval('.chart .curve', (all) =>
    all.map((one) => one.getAttribute('d')),
  );
  expect(drawn.length).toBeGreaterThan(4);
  const links = await plain.$$eval('link[href], script[src]', (all) =>
    all.map((one) => one.getAttribute('href') ?? one.getAttribute('src') ?? ''),
  );
  const [font = ''] = (await plain.evaluate(
    'performance.getEntriesByType("resource").map(({ name }) => name).filter((name) => /woff2/.test(name))',
  )) as string[];
  await plain.close();
  expect(font).toContain('/assets/');
  for (const path of [...links, font]) {
    const url = new URL(path, desk.url);
    const answer = await fetch(url, { headers: { 'accept-encoding': 'br' } });
    expect([path, answer.status]).toEqual([path, 200]);
    if (path === '/favicon.ico') continue;
    expect(answer.headers.get('cache-control')).toContain('immutable');
    expect(answer.headers.get('content-encoding')).toBe(path === font ? null : 'br');
    const etag = answer.headers.get('etag') ?? '';
    expect((await fetch(url, { headers: { 'if-none-match': etag } })).status).toBe(304);
  }
  const answer = await fetch(desk.url, { headers: { 'accept-encoding': 'gzip' } });
  expect(answer.headers.get('content-encoding')).toBe('gzip');
});

test('the first paint waits for one small answer', async () => {
  const context = await browser.createBrowserContext();
  const slow = await context.newPage();
  await slow.goto(desk.url, { waitUntil: 'networkidle0' });
  const waitedFor = (await slow.evaluate(`
    [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
      .filter((one) => one.entryType === 'navigation' || one.renderBlockingStatus === 'blocking')
      .map(({ name, transferSize }) => [new URL(name).pathname, transferSize])`)) as [
    string,
    number,
  ][];
  expect(waitedFor.map(([path]) => path.replace(/[^./]+\./, ''))).toEqual(['/']);
  // At 400 kbit/s and with 400 ms for each answer, this takes 0.8 s.
  const bytes = waitedFor.reduce((sum, [, size]) => sum + size, 0);
  expect(bytes).toBeGreaterThan(1_000);
  expect(bytes).toBeLessThan(20_000);
  await context.close();
});

test('a narrow page shows a request in two lines and its reason, and hides nothing beside it', async () => {
  for (const width of [390, 768]) {
    await page.setViewport({ width, height: 844 });
    await open('/requests?partner=demo');
    const rows = await page.$$eval('tbody tr', (all) =>
      all.map((one) => one.getBoundingClientRect().height),
    );
    expect(rows.length).toBeGreaterThan(3);
    expect(Math.max(...rows)).toBeLessThan(90);
    expect(await isTooWide(page)).toBe(false);
  }
});

test('hostile names are shown as text, without direction marks', async () => {
  await page.setViewport({ width: 360, height: 800 });
  for (const [id, text] of [
    [ids[1], '<script>alert(1)</script>\u{fffd}'],
    [ids[3], endless.business_name],
  ]) {
    await open(`/requests/${id}`);
    await page.click(REVEAL);
    await page.type('#why', 'to see the name');
    await Promise.all([page.waitForNavigation(), page.click('main form button')]);
    expect(await textOf(page)).toContain(text);
    expect(await page.content()).not.toMatch(/\u{202e}|<script>alert/u);
    expect(await isTooWide(page)).toBe(false);
  }
  for (const name of [hostile.business_name, '<script>'])
    expect(await open(`/partners/${encodeURIComponent(name)}`)).toMatch(
      /^There is no such page|No key/m,
    );
  expect(await open('/partners/%zz')).toBe('There is no such page.');
  expect(dialogs).toEqual([]);
});

test('a form without its token and a request from another site are refused', async () => {
  const body = new URLSearchParams({ q: application.email });
  const forged = await fetch(`${desk.url}/find`, { method: 'POST', body });
  expect(forged.status).toBe(403);
  // A foreign host name may resolve to this loopback.
  const stray = await send(desk.url, {
    method: 'GET',
    path: '/',
    headers: { host: 'evil.example' },
  });
  expect(stray.status).toBe(421);
  const { headers } = await fetch(desk.url);
  expect(headers.get('content-security-policy')).toContain("default-src 'self'");
  expect(headers.get('cache-control')).toBe('no-store');
});

test("a Secret that does not count is on the first page and its partner's, by name", async () => {
  await world.writePartner({
    partner: 'odd',
    keys: [newApiKey()],
    annotations: { 'partner-ingest.io/cidrs': 'anywhere' },
  });
  await nowSays(/Warning[^\n]*annotation[^]*Secret partner-keys\/partner-odd odd/);
  expect(await open('/partners')).toMatch(
    /partner-keys\/partner-odd\s+odd\s+annotation [^]*?\d UTC/,
  );
  expect(await open('/partners/odd')).toMatch(/partner-keys\/partner-odd\s+annotation [^]*?\d UTC/);
  await page.setViewport({ width: 360, height: 800 });
  expect(await accessFaults(page)).toEqual([]);
  await world.writePartner({ partner: 'odd', keys: [newApiKey()] });
  await nowSays(/Nothing: no pod reports/);
});

test('with Redis away, the first page says so and names the cause', async () => {
  await own.redis.signal('SIGSTOP');
  await underLoad(() => nowSays(/Warning[^\n]*Redis/));
  await allAnswer();
  await heal(own.redis);
  await nowSays(/Nothing: no pod reports/);
});

test('with the relay away, the first page says that e-mails wait', async () => {
  await world.mail.stopListening();
  await underLoad(async () => {
    await nowSays(/E-mails wait for the relay/);
  });
  await passesAxe(['/']);
  await allAnswer();
  await world.mail.listenAgain();
  await nowSays(/Nothing: no pod reports/);
});

test('with MongoDB away, each page says so, and the first one still shows the pods', async () => {
  await own.mongo.signal('SIGSTOP');
  await nowSays(/database[^]*MongoDB|MongoDB[^]*database/);
  expect(await textOf(page)).toMatch(/processor\s+127\.0\.0\.1:\d+/);
  const silent = (await everyPage()).filter(({ path, text }) => {
    return path !== '/find' && !text.includes('MongoDB');
  });
  expect(silent).toEqual([]);
  await passesAxe(['/', '/partners/demo']);
  await heal(own.mongo);
  await nowSays(/Nothing: no pod reports/);
});

test('no page, log or trail holds unmasked personal data', async () => {
  const logs = [...processes, desk].flatMap(({ lines }) => lines);
  const all = [...shown, ...logs, JSON.stringify(await world.trail())].join('\n');
  expect(shown.length).toBeGreaterThan(40);
  expect(all).not.toContain(CANARY);
  expect(all).not.toContain('CanaryName');
  expect(all).not.toContain(application.ein);
});
