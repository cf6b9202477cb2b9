/**
 * Status look-ups: whose request it is, what is told of it, and what happens when the look-up
 * itself cannot be served.
 */
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { startMongo } from '../../deploy/local/stores.ts';
import { duplicateReason } from '../../internal/application/reasons.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { newId } from '../../internal/platform/ids.ts';
import { SUBMISSIONS, type SubmissionRecord } from '../../internal/submission/submission.ts';
import { bodies, expectAnswer, idOf } from '../support/ingest.ts';
import { INGEST_PATH, lookedUp, send, type Answer, type RequestOptions } from '../support/http.ts';
import { newRecord } from '../support/records.ts';
import { eventually } from '../support/wait.ts';
import { openWorld, type InProcess, type World } from '../support/world.ts';

const UNKNOWN = '{"error":"Not found: no request of yours has this request_id"}';
const USE_GET = '{"error":"Method not allowed: use GET"}';
const UNAVAILABLE =
  '{"error":"Status unavailable: the submission itself is not affected; ask again later, do not submit it again"}';

let world: World;
let ingest: InProcess;
const otherKey = newApiKey();

beforeAll(async () => {
  world = await openWorld({ environment: { STATUS_ENDPOINT: 'true' } });
  await world.writePartner({ partner: 'other', keys: [otherKey] });
  ingest = await world.start('ingest');
  await eventually(
    'the key of the other partner',
    async () => (await lookUp('req_x', { key: otherKey })).status === 404,
  );
});
afterAll(() => world.close());

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
  await world.stores.db.collection<SubmissionRecord>(SUBMISSIONS).insertOne(record);
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

describe('what is told', () => {
  test('of each state: its name for partners, and nothing internal', async () => {
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

  test('every reason with field, code and sentence, but not whose request is in the way', async () => {
    const reasons = [
      {
        field: 'email',
        code: 'duplicate_email',
        message: 'An account with this e-mail address exists already.',
      },
      { field: 'ein', code: 'invalid_format', message: 'ein must be exactly nine digits (0-9).' },
    ] as const;
    const record = await insert({
      state: 'rejected',
      reasons: reasons.map((reason) => ({
        ...reason,
        duplicateOf: newId('req', new Date()),
        samePartner: true,
      })),
    });
    expectAnswer(await lookUp(record._id), 200, shown(record, ...told.rejected, [...reasons]));
  });

  test('of accounts of other partners: one generic duplicate, which does not say of what', async () => {
    const reasons = [
      duplicateReason('email', newId('req', new Date()), false),
      duplicateReason('ein', newId('req', new Date()), false),
    ];
    const generic = { code: 'duplicate', message: 'An account for this applicant exists already.' };
    for (const stored of [reasons, reasons.slice(0, 1), reasons.slice(1)]) {
      const record = await insert({ state: 'rejected', reasons: stored });
      expectAnswer(await lookUp(record._id), 200, shown(record, ...told.rejected, [generic]));
    }
  });
});

describe('who is told', () => {
  test('another partner, like everyone else who asks for an id that is not theirs, gets a 404', async () => {
    const { _id: mine } = await insert({});
    const { _id: nobodys } = newRecord();
    const withoutPartner = newRecord();
    delete (withoutPartner as { partnerId?: string }).partnerId;
    await world.stores.db.collection<SubmissionRecord>(SUBMISSIONS).insertOne(withoutPartner);
    for (const id of [mine, nobodys, withoutPartner._id]) {
      const answer = await lookUp(id, { key: otherKey });
      expectAnswer(answer, 404, UNKNOWN);
      expect(answer.headers['cache-control']).toBe('no-store');
    }
    for (const id of ['hello', '%7B%22$ne%22:null%7D', 'x'.repeat(10_000)])
      expectAnswer(await lookUp(id), 404, UNKNOWN);
    expect((await lookUp(mine)).status).toBe(200);
  });

  test('keys are judged as for a submission, and nothing of it is recorded', async () => {
    const before = (await world.records()).length;
    const id = newId('req', new Date());
    const missing = await lookUp(id, { key: '' });
    expectAnswer(missing, 401, bodies.keyMissing);
    expect(missing.headers['www-authenticate']).toBe('Bearer');
    expectAnswer(await lookUp(id, { key: newApiKey() }), 401, bodies.keyInvalid);
    expectAnswer(await lookUp(id, { key: world.inactiveKey }), 403, bodies.partnerInactive);
    // A submission that is refused is recorded: once its record is there, those before it would be,
    // too.
    const refused = await send(ingest.url, { body: '{}' });
    await eventually('its record', async () => (await world.record(idOf(refused))) ?? undefined);
    expect((await world.records()).length).toBe(before + 1);
  });
});

describe('how it is asked', () => {
  test('HEAD is answered as GET without the body, and a body or a query changes nothing', async () => {
    const record = await insert({});
    const expected = shown(record, ...PROCESSING);
    expectAnswer(await lookUp(record._id, { body: 'x'.repeat(70_000) }), 200, expected);
    const get = await lookUp(`${record._id}?request_id=other`);
    expectAnswer(get, 200, expected);
    const headers = await lookUp(record._id, { method: 'HEAD' });
    expect([headers.status, headers.text]).toEqual([200, '']);
    expect(headers.headers['content-length']).toBe(get.headers['content-length']);
  });

  test('other methods are not allowed, and a longer path is not found', async () => {
    for (const method of ['POST', 'DELETE']) {
      const answer = await lookUp(newId('req', new Date()), { method });
      expectAnswer(answer, 405, USE_GET);
      expect(answer.headers['allow']).toBe('GET, HEAD');
    }
    expectAnswer(await lookUp(`${newId('req', new Date())}/reasons`), 404, bodies.notFound);
  });

  test('look-ups have a limit of the same size, before authentication, and use up no submissions', async () => {
    const limited = await world.start('ingest', {
      RATE_LIMIT_MAX: '3',
      TRUSTED_PROXIES: '127.0.0.0/8',
    });
    const headers = { 'x-forwarded-for': '192.0.2.77' };
    // A busy machine may make a process count on its own for a while, which starts again: so at
    // least three, not exactly.
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
    // Of the two only the submission is counted.
    expect((await world.rateLimited()).map(({ count }) => count)).toEqual([1]);
  });
});

test('switched off, which is the default, there is nothing at the path', async () => {
  const off = await world.start('ingest', { STATUS_ENDPOINT: '' });
  const { _id: id } = await insert({});
  for (const method of ['GET', 'HEAD', 'POST', 'DELETE']) {
    const answer = await lookUp(id, { method, url: off.url });
    expect([answer.status, answer.headers['allow']]).toEqual([404, undefined]);
    if (method !== 'HEAD') expect(answer.text).toBe(bodies.notFound);
  }
  const document = await (await fetch(`${off.adminUrl}/openapi.json`)).text();
  expect(document).not.toContain('lookUpStatus');
  await off.close();
});

test('while MongoDB hangs look-ups are answered 503, and come back by themselves', async () => {
  const store = await startMongo({ log: () => {} });
  try {
    const own = await openWorld({
      environment: { STATUS_ENDPOINT: 'true', MONGODB_URI: store.url },
    });
    try {
      const { url } = await own.start('ingest');
      const ask = (): Promise<Answer> =>
        lookUpOnce(newId('req', new Date()), { url, key: own.key });
      await eventually('a look-up that is served', async () => (await ask()).status === 404);
      await store.signal('SIGSTOP');
      for (const answer of await Promise.all([ask(), ask()]))
        expectAnswer(answer, 503, UNAVAILABLE);
      await store.signal('SIGCONT');
      await eventually('a look-up that is served', async () => (await ask()).status === 404);
    } finally {
      await store.signal('SIGCONT');
      await own.close();
    }
  } finally {
    await store.stop();
  }
});
