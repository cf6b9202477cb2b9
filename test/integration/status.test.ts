/** Status look-ups and lists. */
import { beforeAll, describe, expect, test } from '@jest/globals';
import { duplicateReason } from '../../internal/application/reasons.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { LIST_PATH, OUTCOMES_PATH } from '../../internal/ingest/contract.ts';
import { firstIdAt, newId } from '../../internal/platform/stores/ids.ts';
import { SUBMISSIONS, type SubmissionRecord } from '../../internal/submission/submission.ts';
import { bodies, expectAnswer, idOf } from '../support/ingest.ts';
import { INGEST_PATH, lookedUp, send, type Answer, type RequestOptions } from '../support/http.ts';
import { startMongoWire } from '../support/mongo-wire.ts';
import { newRecord } from '../support/records.ts';
import { eventually } from '../support/wait.ts';
import { worldOf } from '../support/world.ts';

const UNKNOWN = '{"error":"Not found: no request of yours has this request_id"}';
const USE_GET = '{"error":"Method not allowed: use GET"}';
const UNAVAILABLE =
  '{"error":"Status unavailable: the submission itself is not affected; ask again later, do not submit it again"}';

const otherKey = newApiKey();
const partners = [{ partner: 'other', keys: [otherKey] }];
const { world, ingest } = await worldOf(['ingest'], { partners, documentedRights: true });

const lookUpOnce = (
  id: string,
  options: RequestOptions & { readonly url?: string } = {},
): Promise<Answer> =>
  send(options.url ?? ingest.url, {
    method: 'GET',
    key: world.key,
    path: `${INGEST_PATH}/${id}`,
    ...options,
  });

const lookUp = (...given: Parameters<typeof lookUpOnce>): Promise<Answer> =>
  lookedUp(() => lookUpOnce(...given));

const insert = async (changes: Partial<SubmissionRecord>): Promise<SubmissionRecord> => {
  const record = newRecord(changes);
  await world.stores.requests.insertOne(record);
  return record;
};

const shown = (
  record: SubmissionRecord,
  state: string,
  message: string,
  reasons: object[] = [],
): string =>
  JSON.stringify({
    message,
    data: {
      request_id: record._id,
      state,
      received_at: record.receivedAt.toISOString(),
      updated_at: record.stateAt.toISOString(),
      reasons,
    },
  });

const PROCESSING = ['processing', 'The application is being processed'] as const;
const NOT_ACCEPTED = [
  'not_accepted',
  'The request was answered with an error and is not processed',
] as const;
const told: Record<SubmissionRecord['state'], readonly [state: string, message: string]> = {
  recorded: PROCESSING,
  account_created: PROCESSING,
  dead_lettered: PROCESSING,
  completed: ['completed', 'The account exists and the applicant has been e-mailed'],
  rejected: ['rejected', 'The application was rejected for the reasons given'],
  closed: ['rejected', 'The application was rejected for the reasons given'],
  undeliverable: [
    'undeliverable',
    'The account exists, but the e-mail to the applicant was refused for good',
  ],
  malformed: NOT_ACCEPTED,
  refused: NOT_ACCEPTED,
  withdrawn: NOT_ACCEPTED,
};

describe('the answer', () => {
  test('names each state for partners, and nothing internal', async () => {
    for (const [state, words] of Object.entries<(typeof told)['recorded']>({
      ...told,
      of_a_newer_version: PROCESSING,
    })) {
      const record = await insert({
        state: state as SubmissionRecord['state'],
        stateAt: new Date(Date.now() + 1_000),
        attempts: 3,
        lastError: 'internal words',
        accountId: newId('acc', new Date()),
        applicant: { email: 'ada@example.com', ein: '123456789', businessName: 'Ada Ltd' },
      });
      const answer = await lookUp(record._id);
      expectAnswer(answer, 200, shown(record, ...words));
      expect(answer.headers['cache-control']).toBe('no-store');
    }
  });

  test.each<[string, object, samePartner: boolean]>([
    [
      'every reason, but not the other request',
      {
        field: 'email',
        code: 'duplicate_email',
        message: 'An account with this e-mail address exists already.',
      },
      true,
    ],
    [
      'one duplicate without a field for an account of another partner',
      { code: 'duplicate', message: 'An account for this applicant exists already.' },
      false,
    ],
  ])('has %s', async (_what, reason, samePartner) => {
    const reasons = [duplicateReason('email', newId('req', new Date()), samePartner)];
    const record = await insert({ state: 'rejected', reasons });
    expectAnswer(await lookUp(record._id), 200, shown(record, ...told.rejected, [reason]));
  });
});

describe('access', () => {
  test('a partner that asks for a foreign or unknown id gets 404', async () => {
    const { _id: mine } = await insert({});
    const { _id: nobodys } = newRecord();
    const withoutPartner = newRecord();
    delete (withoutPartner as { partnerId?: string }).partnerId;
    await world.stores.requests.insertOne(withoutPartner);
    for (const id of [mine, nobodys, withoutPartner._id]) {
      const answer = await lookUp(id, { key: otherKey });
      expectAnswer(answer, 404, UNKNOWN);
      expect(answer.headers['cache-control']).toBe('no-store');
    }
    for (const id of ['hello', '%7B%22$ne%22:null%7D', 'x'.repeat(10_000)])
      expectAnswer(await lookUp(id), 404, UNKNOWN);
    expect((await lookUp(mine)).status).toBe(200);
  });

  test('keys are checked as for a submission, and a refusal is not recorded', async () => {
    const before = (await world.records()).length;
    const id = newId('req', new Date());
    const missing = await lookUp(id, { key: '' });
    expectAnswer(missing, 401, bodies.keyMissing);
    expect(missing.headers['www-authenticate']).toBe('Bearer');
    expectAnswer(await lookUp(id, { key: newApiKey() }), 401, bodies.keyInvalid);
    expectAnswer(await lookUp(id, { key: world.inactiveKey }), 403, bodies.partnerInactive);
    // Records are written in order, so an earlier one would be there too.
    const refused = await send(ingest.url, { body: '{}' });
    await eventually('its record', async () => (await world.record(idOf(refused))) ?? undefined);
    expect((await world.records()).length).toBe(before + 1);
  });
});

describe('the request', () => {
  test('HEAD is answered as GET without the body, and body and query are ignored', async () => {
    const record = await insert({});
    const expected = shown(record, ...PROCESSING);
    expectAnswer(await lookUp(record._id, { body: 'x'.repeat(70_000) }), 200, expected);
    const get = await lookUp(`${record._id}?request_id=other`);
    expectAnswer(get, 200, expected);
    const headers = await lookUp(record._id, { method: 'HEAD' });
    expect([headers.status, headers.text]).toEqual([200, '']);
    expect(headers.headers['content-length']).toBe(get.headers['content-length']);
  });

  test('look-ups have their own limit of the same size, checked before authentication', async () => {
    const limited = await world.start('ingest', {
      RATE_LIMIT_MAX: '3',
      TRUSTED_PROXIES: '127.0.0.0/8',
    });
    const headers = { 'x-forwarded-for': '192.0.2.77' };
    // A slow Redis makes a process count on its own, so the count is a minimum.
    const untilLimited = (status: number, ask: () => Promise<Answer>): Promise<Answer> => {
      let served = 0;
      return eventually('a 429', async () => {
        const answer = await ask();
        if (answer.status !== 429) expect(answer.status).toBe(status);
        else expect(served).toBeGreaterThanOrEqual(3);
        served += 1;
        return answer.status === 429 && answer;
      });
    };
    const over = await untilLimited(401, () =>
      lookUp(newId('req', new Date()), { url: limited.url, headers, key: '' }),
    );
    expectAnswer(
      over,
      429,
      `{"error":"Too many requests: at most 3 in 60 seconds from one address; retry after ${over.headers['retry-after']} seconds"}`,
    );
    await untilLimited(202, () => send(limited.url, { key: world.key, body: '{}', headers }));
    await limited.close();
    // Only the submission is counted by address.
    expect((await world.rateLimited()).map(({ count }) => count)).toEqual([1]);
  });
});

describe('Prefer: wait', () => {
  const wait = (id: string, prefer: string, url = ingest.url): Promise<Answer> =>
    lookUpOnce(id, { url, headers: { prefer } });
  const applied = ({ headers }: Answer): string | undefined => headers['preference-applied'];

  test('waits at the Location of the 202 until the state is final', async () => {
    const accepted = await send(ingest.url, { key: world.key, body: '{}' });
    const id = idOf(accepted);
    expect(accepted.headers['location']).toBe(`${INGEST_PATH}/${id}`);
    const asked = wait(id, 'respond-async, Wait="20"; x=y, wait=1');
    const requests = world.stores.requests;
    await requests.updateOne({ _id: id }, { $set: { state: 'completed' } });
    const answer = await asked;
    expect(answer.json).toMatchObject({ data: { request_id: id, state: 'completed' } });
    expect(applied(answer)).toBe('wait=20');
    expect(applied(await wait(id, 'wait=31'))).toBe('wait=30');
    const none = [
      'wait',
      'wait=1.5',
      'nowait=5',
      'foo="a\\", wait=9"',
      'foo=a; wait=9',
      'wait=9 9',
    ];
    for (const prefer of none)
      expect([prefer, applied(await wait(id, prefer))]).toEqual([prefer, undefined]);
    for (const prefer of ['wait=9;x="y, z"', 'foo="a;b", , WAIT = "9" ', 'wait=9, wait=1'])
      expect([prefer, applied(await wait(id, prefer))]).toEqual([prefer, 'wait=9']);
    expect(applied(await wait(id, `wait=${'9'.repeat(400)}`))).toBe('wait=30');
  });

  test('waits no longer than the given time', async () => {
    const record = await insert({});
    const answer = await wait(record._id, 'wait=1');
    expectAnswer(answer, 200, shown(record, ...PROCESSING));
    expect(applied(answer)).toBe('wait=1');
    const { _id: nobodys } = newRecord();
    expectAnswer(await wait(nobodys, 'wait=20'), 404, UNKNOWN);
  });

  test('is answered at once in a drain', async () => {
    const own = await world.spawn('ingest');
    const record = await insert({});
    const answers = Array.from({ length: 20 }, () => wait(record._id, 'wait=30', own.url));
    await eventually('the first to be read', async () => {
      const looked = { status: '404' };
      await lookUpOnce(newId('req', new Date()), { url: own.url });
      return (await world.metric(own, 'partner_ingest_requests_total', looked)) > 0;
    });
    own.child.kill('SIGTERM');
    for (const answer of await Promise.all(answers)) {
      expectAnswer(answer, 200, shown(record, ...PROCESSING));
      expect(applied(answer)).toBeUndefined();
    }
    expect((await own.exited).code).toBe(0);
  });
});

describe('the list', () => {
  interface Page {
    readonly data: {
      readonly submissions: readonly { readonly request_id: string }[];
      readonly next_cursor?: string;
    };
  }
  const DAY_MS = 86_400_000;
  const startedAt = Date.now();
  /** One request a minute, newest first. */
  const mine = Array.from({ length: 350 }, (_, minutesAgo) => {
    const receivedAt = new Date(startedAt - minutesAgo * 60_000);
    // An id is made when the headers come, up to 20 s before.
    const _id = firstIdAt('req', new Date(receivedAt.getTime() - 20_000));
    const state = minutesAgo % 7 === 0 ? 'rejected' : 'completed';
    return newRecord({ _id, receivedAt, partnerId: 'other', state });
  });
  const list = (query: string, options: RequestOptions = {}): Promise<Answer> =>
    lookedUp(() =>
      send(ingest.url, {
        method: 'GET',
        key: otherKey,
        path: `${LIST_PATH}?${query}`,
        ...options,
      }),
    );
  const idsIn = ({ json }: Answer): string[] =>
    (json as Page).data.submissions.map(({ request_id }) => request_id);
  const at = (minutesAgo: number): string =>
    encodeURIComponent(new Date(startedAt - minutesAgo * 60_000).toISOString());

  async function allPages(query: string, between = async (): Promise<unknown> => undefined) {
    const ids: string[] = [];
    for (let cursor = ''; ;) {
      const page = await list(`${query}&cursor=${cursor}`);
      ids.push(...idsIn(page));
      cursor = (page.json as Page).data.next_cursor ?? '';
      if (cursor === '') return ids;
      await between();
    }
  }

  beforeAll(async () => void (await world.stores.requests.insertMany(mine)));
  const idsOf = (records: readonly SubmissionRecord[]): string[] => records.map(({ _id }) => _id);

  test('has all requests of the partner, newest first, each once while more arrive', async () => {
    const arrives = () => insert({ partnerId: 'other', receivedAt: new Date(startedAt + DAY_MS) });
    await insert({});
    expect(await allPages(`until=${at(-1)}`, arrives)).toEqual(idsOf(mine));
    const newest = await list('');
    const limits = { of_address: 1_000_000, of_address_seconds: 60 };
    expect(newest.json).toMatchObject({ data: { limits, last_day: expect.any(Object) } });
    expect(idsIn(newest)).toHaveLength(100);
    expect(idsIn(await list('', { key: world.key }))).not.toContain(mine[0]!._id);
  });

  test('filters by time and by state', async () => {
    const query = `since=${at(100)}&until=${at(50)}&state=`;
    expect(await allPages(query)).toEqual(idsOf(mine.slice(51, 101)));
    const rejected = mine.filter(({ state }) => state === 'rejected');
    expect(await allPages('state=rejected')).toEqual(idsOf(rejected));
  });

  test('reads every time of RFC 3339, and a blank where a + was lost', async () => {
    const since = new Date(startedAt - 100 * 60_000).toISOString().slice(0, -1);
    const expected = idsIn(await list(`since=${since}Z&until=${at(50)}`));
    expect(expected.length).toBeGreaterThan(40);
    for (const time of [
      `${since}z`,
      `${since.replace('T', 't')}Z`,
      `${since.replace('T', '%20')}Z`,
      `${since}+00:00`,
      `${since}%2B00:00`,
      `${since}-00:00`,
      `${since}456789+00:00`,
    ])
      expect([time, idsIn(await list(`since=${time}&until=${at(50)}`))]).toEqual([time, expected]);
    expect(idsIn(await list('since=2016-12-31T23:59:60Z'))).toHaveLength(100);
    expect(idsIn(await list('until=2016-12-31t15:59:60.5-08:00'))).toEqual([]);
  });

  test('filters by Idempotency-Key, with no more than a look-up tells', async () => {
    const headers = { 'idempotency-key': '"a key"' };
    const accepted = await send(ingest.url, { key: otherKey, body: '{}', headers });
    const looked = await lookUp(idOf(accepted), { key: otherKey });
    const { data } = looked.json as { data: object };
    const found = await list('idempotency_key=a%20key');
    expect(found.json).toEqual({
      message: 'Your requests, newest first',
      data: { submissions: [{ ...data, idempotency_key: 'a key' }] },
    });
    expect(found.headers['cache-control']).toBe('no-store');
    expect(idsIn(await list('idempotency_key=another'))).toEqual([]);
    expect(idsIn(await list('idempotency_key=a%20key', { key: world.key }))).toEqual([]);
  });

  test('refuses an undocumented query, a wrong method and a wrong key', async () => {
    const time = 'a time of RFC 3339, such as 2026-11-27T09:30:00Z';
    for (const [query, fault] of [
      [
        'state=open',
        "state must be one of processing, completed, rejected, undeliverable and not_accepted, not 'open'",
      ],
      ['state=completed&since=today', `since must be ${time}, not 'today'`],
      ['until=2026-02-30T00:00:00Z', `until must be ${time}, not '2026-02-30T00:00:00Z'`],
      [
        'toString=5',
        "'toString' is unknown: known are since, until, state, cursor and idempotency_key",
      ],
      ['state=completed&state=x', 'state must be given once'],
      [
        `cursor=${'x'.repeat(5_000)}`,
        `cursor must be a next_cursor that keys of this partner and mode were answered, not '${'x'.repeat(100)}…'`,
      ],
    ] as const)
      expectAnswer(await list(query), 400, JSON.stringify({ error: `Query parameter ${fault}` }));
    const posted = await list('', { method: 'POST' });
    expectAnswer(posted, 405, USE_GET);
    expect(posted.headers['allow']).toBe('GET, HEAD');
    expectAnswer(await list('', { key: newApiKey() }), 401, bodies.keyInvalid);
    const head = await list('', { method: 'HEAD' });
    expect([head.status, head.text]).toEqual([200, '']);
  });
});

test('the OpenAPI document is answered without a key, unless it is switched off', async () => {
  const path = '/api/v1/capital/openapi.json';
  const ask = (url: string, method = 'GET') => send(url, { method, path });
  const answer = await ask(ingest.url);
  const admin = (await (await fetch(`${ingest.adminUrl}/openapi.json`)).json()) as object;
  expect([answer.status, answer.json]).toEqual([200, admin]);
  expect(answer.headers).toMatchObject({
    'content-type': 'application/json; charset=utf-8',
    'cache-control': 'public, max-age=3600',
  });
  expect(Number(answer.headers['x-ratelimit-remaining'])).toBeGreaterThan(0);
  const head = await ask(ingest.url, 'HEAD');
  expect([head.status, head.text]).toEqual([200, '']);
  expect(head.headers['content-length']).toBe(answer.headers['content-length']);
  expectAnswer(await ask(ingest.url, 'POST'), 405, USE_GET);
  const off = await world.start('ingest', { OPENAPI_ENDPOINT: 'false' });
  for (const method of ['GET', 'POST'])
    expectAnswer(await ask(off.url, method), 404, bodies.notFound);
  await off.close();
});

test('switched off, the paths are answered 404, and a 202 has no Location', async () => {
  const off = await world.start('ingest', { STATUS_ENDPOINT: 'false' });
  const { _id: id } = await insert({});
  for (const method of ['GET', 'HEAD', 'POST', 'DELETE']) {
    for (const path of [`${INGEST_PATH}/${id}`, LIST_PATH, OUTCOMES_PATH]) {
      const answer = await send(off.url, { key: world.key, method, path });
      expect([answer.status, answer.headers['allow']]).toEqual([404, undefined]);
      if (method !== 'HEAD') expect(answer.text).toBe(bodies.notFound);
    }
  }
  const document = await (await fetch(`${off.adminUrl}/openapi.json`)).text();
  expect(document).not.toMatch(/lookUpStatus|listSubmissions|followOutcomes|Location/);
  const accepted = await send(off.url, { key: world.key, body: '{}' });
  expect([accepted.status, accepted.headers['location']]).toEqual([202, undefined]);
  await off.close();
});

test('look-ups are answered 503 while MongoDB hangs, and recover by themselves', async () => {
  const wire = await startMongoWire(world.stores.mongodbUri);
  const hung = await world.start('ingest', { MONGODB_URI: wire.url });
  const ask = (): Promise<Answer> => lookUpOnce(newId('req', new Date()), { url: hung.url });
  try {
    wire.hold(({ find }) => find === SUBMISSIONS);
    for (const answer of await Promise.all([ask(), ask()])) expectAnswer(answer, 503, UNAVAILABLE);
    wire.hold(() => false);
    await eventually('a look-up that is served', async () => (await ask()).status === 404);
  } finally {
    await hung.close();
    await wire.close();
  }
});
