/** A partner's page counts its requests, and each figure leads to its list, which is also a file. */
import { beforeAll, expect, test } from '@jest/globals';
import { MongoClient } from 'mongodb';
import type { Account } from '../../internal/account/account.ts';
import { Activity } from '../../internal/operators/view/activity.ts';
import { htmlOf } from '../../internal/operators/console/render.ts';
import type { ConsoleTools } from '../../internal/operators/console/routes.ts';
import { startConsole } from '../../internal/operators/console/server.ts';
import { createLogger } from '../../internal/platform/process/log.ts';
import { later, systemClock } from '../../internal/platform/process/clock.ts';
import type { Loop } from '../../internal/platform/process/loop.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { duplicateReason } from '../../internal/application/reasons.ts';
import { newId } from '../../internal/platform/stores/ids.ts';
import { SupportQueries } from '../../internal/submission/support-queries.ts';
import { SUBMISSIONS, type SubmissionRecord } from '../../internal/submission/submission.ts';
import { rangeOf, trafficView } from '../../internal/operators/view/traffic.ts';
import { turnedAwayView } from '../../internal/operators/view/turned-away.ts';
import { TrafficCounter } from '../../internal/traffic/traffic-counter.ts';
import { TrafficReader } from '../../internal/traffic/traffic-reader.ts';
import { deadLettersView } from '../../internal/operators/view/search.ts';
import { accessFaults, isTooWide, textOf } from '../support/browser.ts';
import { browserOfFile } from '../support/browser-of-file.ts';
import { startMongoWire } from '../support/mongo-wire.ts';
import { newRecord } from '../support/records.ts';
import { eventually } from '../support/wait.ts';
import { worldOf } from '../support/world.ts';

const HOUR_MS = 3_600_000;
const apex = {
  partner: 'apex',
  keys: [newApiKey()],
  annotations: {
    'partner-ingest.io/max-per-minute': '12',
    'partner-ingest.io/not-after': later(new Date(), 20.5 * 24 * HOUR_MS).toISOString(),
  },
};
const { world } = await worldOf(['ingest'], { documentedRights: true, partners: [apex] });
const KEY = 'abcdef012345';
const now = new Date();
const page = await (await browserOfFile()).newPage();
const desk = await world.start('console');

/** The fields of each, `hoursAgo`, and how many of them. */
const kinds: readonly (readonly [hoursAgo: number, count: number, Partial<SubmissionRecord>])[] = [
  [0.5, 70, { state: 'completed' }],
  [0.4, 20, rejected('ein', 'taken')],
  [0.4, 3, rejected('email', 'taken')],
  [0.3, 6, { state: 'malformed', httpStatus: 400, keyId: KEY, remoteIp: '192.0.2.7' }],
  [0.3, 1, { state: 'completed', test: true }],
  [20, 100, { state: 'completed' }],
  [100, 800, { state: 'completed' }],
];
const AWAY = 40;

function rejected(field: string, code: string): Partial<SubmissionRecord> {
  const both = [
    { field, code, message: `${field} is ${code}` },
    { field: 'business_name', code: 'required', message: 'is required' },
  ] as const;
  return { state: 'rejected', reasons: both as unknown as SubmissionRecord['reasons'] & object };
}

beforeAll(async () => {
  const applicant = { email: '=cmd@example.com', ein: '123456789', businessName: '+1 Ltd' };
  const records = kinds.flatMap(([hoursAgo, count, fields]) =>
    Array.from({ length: count }, () => {
      const receivedAt = later(now, -hoursAgo * HOUR_MS);
      const { dueAt: _, ...record } = newRecord({ receivedAt, partnerId: 'demo', applicant });
      return { ...record, version: 1, ...fields, _id: newId('req', receivedAt) };
    }),
  );
  await world.stores.requests.insertMany(records);
  for (const record of records) {
    const { state, httpStatus, reasons, receivedAt } = record;
    const owner = record.test ? 'demo test' : 'demo';
    countedAt(receivedAt).answered(owner, 'answers', httpStatus, 2);
    if (state !== 'malformed')
      countedAt(receivedAt).ended(owner, { receivedAt, history: [] }, state, reasons);
  }
  const limitedAt = later(now, -0.2 * HOUR_MS);
  for (let index = 0; index < AWAY; index += 1)
    countedAt(limitedAt).answered('demo', 'answers', 429);
  for (const counter of counters.values()) await counter.close();
  await world.stores.db.collection<{ _id: string }>('rate_limited').insertOne({
    _id: `192.0.2.9 ${KEY} 1`,
    address: '192.0.2.9',
    partnerId: 'demo',
    keyId: KEY,
    limits: ['300 a minute of this address'],
    windowStart: limitedAt,
    count: AWAY,
    requestIds: [],
    expiresAt: later(now, HOUR_MS),
  } as { _id: string });
});

const counters = new Map<number, TrafficCounter>();

/** What counts at that time; only the closing writes. */
function countedAt(at: Date): TrafficCounter {
  const clock = { now: () => at, monotonicMs: () => 0 };
  const loops = { start: () => ({ stop: () => Promise.resolve() }) as unknown as Loop };
  const counter =
    counters.get(at.getTime()) ?? new TrafficCounter({ db: world.stores.db, clock, loops });
  counters.set(at.getTime(), counter);
  return counter;
}

async function open(path: string): Promise<string> {
  await page.goto(desk.url + path);
  return textOf(page);
}
const cells = (label: string): Promise<string[]> =>
  page.$$eval(`[aria-label="${label}"] tbody tr`, (rows) =>
    rows.map((row) => [...row.children].map(({ textContent }) => textContent).join(' ')),
  );
const follow = async (selector: string): Promise<string> => {
  await Promise.all([page.waitForNavigation(), page.click(selector)]);
  return textOf(page);
};

test('requests are counted once, by outcome, and reasons beneath, for each range', async () => {
  expect(await open('/partners/demo')).toMatch(/Accepted: 93\. Time to accept, p99: < 3 ms/);
  expect(await page.$$eval('.stat', (all) => all.map((one) => one.textContent.trim()))).toEqual([
    'Requests139 the hour before: 0',
    'Completed50.4 % 70 requeststhe hour before: –',
    'Rejected16.5 % 23 requeststhe hour before: –',
    'Turned away33.1 % 46 requeststhe hour before: –',
  ]);
  // One that certifies has tests alone.
  const tried = () =>
    page.$$eval('[aria-label="Endings tried"] .good', (all) =>
      all.map((one) => one.parentElement!.textContent.trim()),
    );
  expect(await tried()).toEqual(['Completed']);
  expect(await accessFaults(page)).toEqual([]);
  await follow('a[href="?range=7d&mode=test"]:not(.seg a)');
  expect(await page.$eval('.stat dd', (one) => one.textContent.trim())).toBe('1');
  await open('/partners/demo');
  expect(await cells('Outcomes')).toEqual([
    'Completed 70 50.4 %',
    'Turned away 46 33.1 %',
    'Rejected 23 16.5 %',
  ]);
  expect(await cells('Answers')).toEqual([
    `429 over the limit of its address or of the partner${KEY} at 192.0.2.9: 40, over 300 a minute of this address 40 28.8 %`,
    `400 not a JSON object, too large, or not valid HTTP${KEY} at 192.0.2.7: 6 6 4.3 %`,
  ]);
  expect(
    await page.$$eval('[aria-label=Reasons] p', (all) => all.map(({ textContent }) => textContent)),
  ).toEqual([
    'business_name: required 23 100.0 %',
    'ein: taken 20 87.0 %',
    'email: taken 3 13.0 %',
  ]);
  expect(await cells('Answered well')).toEqual(['202 accepted 93 66.9 %']);
  const shows = async (total: string): Promise<void> => {
    await eventually(
      `${total} requests`,
      async () => (await page.$eval('.stat dd', (one) => one.textContent.trim())) === total,
    );
    expect(await page.$$eval('.chart .block', ({ length }) => length)).toBeGreaterThan(0);
  };
  await page.click('a[href="?range=7d"]');
  await shows('1,039');
  await page.click('.pick summary');
  await page.type('#since', '24h');
  await follow('#picked button');
  await shows('239');
  await page.click('a[href$="mode=test"]');
  await shows('1');
  await open('/partners/demo?since=tomorrow');
  expect(await page.$eval('[role=alert]', ({ textContent }) => textContent)).toMatch(/like 30m/);
  expect(await open('/partners/demo?since=2020-01-01')).toContain('within the last 400 days');
});

test('the list of partners has their last day, limits and ends, worst first or by name', async () => {
  await open('/partners');
  const all = [
    'demo Active 239  69 28.9 % – 1 active – –',
    expect.stringMatching(/^apex Active 0 – – – 12 1 active in 20 d( 1[12] h)? –$/),
    'dormant Inactive 0 – – – – 1 inactive – inactive by partner-keys/partner-dormant',
  ];
  expect(await cells('Partners')).toEqual(all);
  expect(await page.$$eval('tbody .spark', ({ length }) => length)).toBe(1);
  expect(await accessFaults(page)).toEqual([]);
  await follow('.seg a[href$="by=name"]');
  expect(await cells('Partners')).toEqual([all[1], all[0], all[2]]);
  expect(await open('/partners?page=2')).not.toContain('demo');
});

test('each figure leads to its list, whose address names no person and gives the same to others', async () => {
  await open('/partners/demo');
  expect(await follow('[aria-label=Reasons] li:nth-child(2) a')).toContain('Rejected');
  expect(await cells('Requests')).toHaveLength(20);
  expect(new URL(page.url()).searchParams.get('reason')).toBe('taken');
  expect(await accessFaults(page)).toEqual([]);
  await open('/partners/demo');
  await follow('[aria-label="Answers"] tr:last-child a');
  expect(await cells('Requests')).toHaveLength(6);
  // The form leaves no empty fields in the address.
  await open('/partners/demo');
  await follow('[aria-label="Outcomes"] a');
  expect(await cells('Requests')).toHaveLength(50);
  await follow('main form:has([name=before]) button');
  expect(await cells('Requests')).toHaveLength(20);
  await page.click('[popovertarget=narrow]');
  await page.type('#code', '400');
  await follow('.fields button');
  expect(page.url()).not.toMatch(/=(&|$)/);
  await page.setViewport({ width: 390, height: 844 });
  expect(await isTooWide(page)).toBe(false);
  await page.setViewport({ width: 1_280, height: 900 });
});

test.each(['email=jane@example.com', 'reason=jane@example.com', 'partner=12-3456789', 'name=Ada'])(
  'an address with %s is refused, and does not repeat it',
  async (query) => {
    for (const path of ['/requests', '/requests.csv']) {
      const answer = await fetch(`${desk.url}${path}?${query}`);
      expect(answer.status).toBe(400);
      expect(await answer.text()).not.toMatch(/jane|3456789|Ada/);
    }
  },
);

test('the file has what the list shows, masked, and no cell that a spreadsheet would run', async () => {
  await open('/requests?partner=demo&state=rejected');
  const href = await page.$eval('a[download]', (link) => link.getAttribute('href') ?? '');
  const answer = await fetch(new URL(href, desk.url));
  expect(answer.headers.get('content-disposition')).toBe('attachment; filename="requests.csv"');
  const [head, first, ...others] = (await answer.text()).trimEnd().split('\r\n');
  expect(head).toBe(
    '"request_id","received_at","state","http_status","partner","business_name","email","ein","why"',
  );
  expect(first).toMatch(
    /^"req_\w+","\d{4}-[^"]+Z","rejected","202","demo","'\+\*\*\* L\*\*\*","'=\*\*\*@e\*\*\*\.com","\*{5}6789","ein: taken, business_name: required"$/,
  );
  expect(others).toHaveLength(22);
});

test('the file for the partner has a line for each reason, and nothing of an applicant', async () => {
  await open('/partners/demo');
  const href = await page.$eval('a[href*="reasons.csv"]', ({ href: address }) => address);
  const answer = await fetch(href);
  const text = await answer.text();
  const [head, ...lines] = text.trimEnd().split('\r\n');
  expect(head).toBe('"request_id","received_at","state","field","code","message"');
  expect(lines).toHaveLength(2 * 23);
  expect(
    lines.filter((one) => /^"req_\w+","[^"]+Z","rejected","ein","taken","ein is taken"$/.test(one)),
  ).toHaveLength(20);
  expect(text).not.toMatch(/cmd|example|Ltd|6789/);
  // Whose account it is, a partner is not told.
  await world.stores.requests.insertOne(
    newRecord({
      partnerId: 'told',
      state: 'rejected',
      reasons: [{ ...duplicateReason('ein', 'req_other', false) }],
    }),
  );
  const told = await (await fetch(`${desk.url}/partners/told/reasons.csv`)).text();
  expect(told).toMatch(/"rejected","","duplicate","An account for this applicant exists already."/);
  const wrong = await fetch(`${desk.url}/partners/demo/reasons.csv?since=2020-01-01`);
  expect(wrong.status).toBe(400);
});

test('times are UTC, or the own ones by a switch that is remembered', async () => {
  await page.emulateTimezone('Asia/Kolkata');
  expect(await open('/partners/demo')).toMatch(/from \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC/);
  await page.click('#zone');
  const own = /from \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \+05:30/;
  expect(await textOf(page)).toMatch(own);
  expect(await open('/partners/demo')).toMatch(own);
  await page.click('#zone');
  expect(await textOf(page)).not.toContain('+05:30');
});

test('a phone shows the state of a request beside its id, and a dark screen prints black on white', async () => {
  await page.setViewport({ width: 390, height: 844 });
  await open('/requests?partner=demo');
  const [state, link] = await Promise.all(
    ['tbody .pill', 'tbody th a'].map((one) =>
      page.$eval(one, (found) => found.getBoundingClientRect().top),
    ),
  );
  expect(Math.abs(state! - link!)).toBeLessThan(12);
  expect(state).toBeLessThan(844);
  await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: 'dark' }]);
  await page.emulateMediaType('print');
  const colours = await page.evaluate(
    '[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]',
  );
  expect(colours).toEqual(['rgb(0, 0, 0)', 'rgb(255, 255, 255)']);
  await page.emulateMediaType('screen');
});

test('where time runs out, the newest are counted, and the page says since when', async () => {
  const submissions = new SupportQueries(world.stores.db);
  const counted = { partner: 'demo', since: later(now, -HOUR_MS), until: now };
  const { groups, from } = await submissions.kinds({ ...counted, withinMs: 0 });
  expect([groups, from]).toEqual([[], now]);
  const dead = await deadLettersView({ submissions }, now, 0);
  expect(dead).toEqual({ causes: [], from: now });
  expect(htmlOf('dead-letters', { title: '', now, ...dead })).toMatch(
    /Too many to count[^.]*since/,
  );
  class Late extends SupportQueries {
    override kinds(asked: Parameters<SupportQueries['kinds']>[0]) {
      return super.kinds({ ...asked, since: later(now, -0.35 * HOUR_MS) });
    }
  }
  const hour = { partner: 'demo', test: false, since: later(now, -HOUR_MS), until: now };
  const turnedAway = await turnedAwayView(hour, { submissions: new Late(world.stores.db) });
  expect(turnedAway.rows.map(({ count }) => count)).toEqual([AWAY, 6]);
  expect(await pageOf(turnedAway)).toContain(
    `Too many to read in one go: keys and addresses are since <time datetime="${turnedAway.from.toISOString()}`,
  );
});

async function pageOf(turnedAway: object): Promise<string> {
  const range = rangeOf('1h', now);
  const view = await trafficView('demo', range, now, new TrafficReader(world.stores.db));
  const certification = { since: now, requests: 0, endings: [] };
  const model = { partner: 'demo', keys: [], undo: [], secrets: [], rangeNames: [], certification };
  const asked = { name: '1h', since: '', until: '', test: false };
  const shown = { title: '', now, listOf: () => '', asked, said: new Map(), view, turnedAway };
  return htmlOf('partner', { ...model, ...shown });
}

test('what cannot be read in time is of a shorter period, and the page says so', async () => {
  const wire = await startMongoWire(world.stores.mongodbUri);
  const client = new MongoClient(wire.url);
  wire.instead(({ find, filter }) =>
    (find === 'rate_limited' && filter.windowStart.$gte < later(now, -2 * HOUR_MS)) ||
    (find === SUBMISSIONS && filter._id === undefined)
      ? { ok: 0, code: 50, codeName: 'MaxTimeMSExpired', errmsg: 'the time is over' }
      : undefined,
  );
  try {
    const submissions = new SupportQueries(client.db(world.stores.database));
    const since = later(now, -24 * HOUR_MS);
    const asked = { partner: 'demo', test: false, since, until: now };
    const { rows, from } = await turnedAwayView(asked, { submissions });
    expect(from.getTime()).toBeGreaterThan(since.getTime());
    expect(rows.map(({ count }) => count)).toEqual([AWAY, 6]);
    // An address that too many requests have is searched from the newest on.
    const found = await submissions.newest({ email: '=cmd@example.com' }, 60);
    const ids = found.map(({ _id }) => _id);
    expect(ids).toHaveLength(60);
    expect(ids).toEqual(ids.toSorted().toReversed());
  } finally {
    await client.close();
    await wire.close();
  }
});

test('two lists are read together, and who comes when many wait is told to wait', async () => {
  const reading = { now: 0, most: 0 };
  const gone = Promise.withResolvers<undefined>();
  class Slow extends SupportQueries {
    override async list() {
      reading.now += 1;
      reading.most = Math.max(reading.most, reading.now);
      await gone.promise;
      reading.now -= 1;
      return { found: [] };
    }
  }
  const server = await startConsole({
    host: '127.0.0.1',
    port: 0,
    secret: 'a secret of 32 characters or more',
    command: 'partner-ingest',
    place: 'here',
    tools: {
      reads: {
        submissions: new Slow(world.stores.db),
        traffic: new TrafficReader(world.stores.db),
      },
      activity: new Activity(now),
    } as unknown as ConsoleTools,
    ended: new Set(),
    clock: systemClock,
    log: createLogger('console', 'silent'),
    databaseFault: () => undefined,
  });
  try {
    const path = `${server.url}/requests`;
    const refused: number[] = [];
    const waiting = Array.from({ length: 30 }, async () => {
      const { status } = await fetch(path);
      if (status !== 200) refused.push(status);
    });
    await eventually('some to be refused', () => refused.length === 8);
    expect(refused).toEqual(Array.from({ length: 8 }, () => 429));
    gone.resolve(undefined);
    await Promise.all(waiting);
    expect([refused.length, reading.most]).toEqual([8, 2]);
    expect((await fetch(path)).status).toBe(200);
  } finally {
    await server.close();
  }
});

test('an outcome that failed shows the last error of its newest, with the words of the relay', async () => {
  const ids = [new Date(), later(new Date(), 1)].map((at) => newId('req', at));
  for (const [index, requestId] of ids.entries()) {
    const record = newRecord({
      _id: requestId,
      partnerId: 'sour',
      state: 'undeliverable',
      lastError: `the mail server answered 550 at rcpt, ${index}`,
    });
    await world.stores.requests.insertOne(record);
    countedAt(record.receivedAt).answered('sour', 'answers', 202);
    countedAt(record.receivedAt).ended('sour', record, 'undeliverable', []);
    const mail = { claim: 1, startedAt: now, attempt: 1, host: 'processor-1', result: 'refused' };
    await world.stores.accounts.insertOne({
      _id: `acc_${index}`,
      requestId,
      email: `${index}@example.com`,
      emailNormalized: `${index}@example.com`,
      ein: String(index),
      createdAt: now,
      mail: {
        begun: 1,
        possible: 0,
        handOvers: {
          1: { ...mail, phase: 'rcpt', code: 550, answer: `550 <b>no\r\nroom ${index}` },
        },
      },
    } as unknown as Account);
  }
  for (const counter of counters.values()) await counter.close();
  await open('/partners/sour');
  expect(await cells('Outcomes')).toEqual([
    `Not delivered 2 100.0 % the mail server answered 550 at rcpt, 1, "550 <b>no room 1"`,
  ]);
  expect(await accessFaults(page)).toEqual([]);
});
