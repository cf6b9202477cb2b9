/** Late bounces that a program reports: `POST /bounces`, and the sample that takes webhooks. */
import { createHmac, generateKeyPairSync, sign as signWith } from 'node:crypto';
import { createServer } from 'node:http';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { expect, test } from '@jest/globals';
import { parse } from 'yaml';
import { later } from '../../internal/platform/process/clock.ts';
import { newId } from '../../internal/platform/stores/ids.ts';
import { RECORD_SCHEMA } from '../../internal/submission/submission.ts';
import { ROOT } from '../../tools/root.ts';
import { operatorOf } from '../support/cli.ts';
import { listen } from '../support/listen.ts';
import { read } from '../support/pages.ts';
import { openOwnWorld, submit } from '../support/processing.ts';
import { eventually } from '../support/wait.ts';
import { newApplication, worldOf } from '../support/world.ts';

const OLD = 'an-old-secret-of-32-characters-or-more';
const SECRET = 'the-secret-of-32-characters-or-more-1';
const settings = { BOUNCE_SECRETS: `${SECRET}, ${OLD}`, BOUNCES_PORT: '0' };

const { world } = await worldOf([], { documentedRights: true, environment: settings });
const ingest = await world.start('ingest');
const processor = await world.start('processor');
const { completed, done } = operatorOf({ world, ingest });
const now = (): string => new Date().toISOString();
const seconds = (): number => Math.floor(Date.now() / 1_000);

const signature = (body: string, secret = SECRET, at: number | string = seconds()): string =>
  `t=${at},v1=${createHmac('sha256', secret).update(`${at}.${body}`).digest('hex')}`;

interface Answer {
  readonly status: number;
  readonly retryAfter: string | null;
  readonly error?: string;
  readonly results?: readonly string[];
}

async function post(
  body: string,
  given = signature(body),
  url = processor.url,
  type = 'application/json',
): Promise<Answer> {
  const headers = { 'content-type': type, 'bounce-signature': given };
  const answer = await fetch(`${url}/bounces`, { method: 'POST', headers, body });
  const json = (await answer.json()) as Omit<Answer, 'status' | 'retryAfter'>;
  return { status: answer.status, retryAfter: answer.headers.get('retry-after'), ...json };
}

const report = (...bounces: readonly object[]): Promise<Answer> =>
  post(JSON.stringify({ bounces }));

test.each([
  ['message_id', '5.1.1', 'undeliverable'],
  ['email', '5.2.2', 'undeliverable'],
  ['request_id', '5.7.1', 'dead_lettered'],
  ['email', '4.4.7', 'dead_lettered'],
  ['message_id', undefined, 'dead_lettered'],
] as const)('a bounce by %s with the status %s makes it %s, once', async (by, status, state) => {
  const { id, application, messageId, mails } = await completed();
  const value = { message_id: messageId, email: application.email.toUpperCase(), request_id: id };
  const bounce = { [by]: value[by], at: now(), ...(status && { status }) };
  const twice = await Promise.all([report(bounce), report(bounce)]);
  for (const { results = [] } of twice) expect([state, 'repeated']).toContain(results[0]);
  expect(await report(bounce, bounce)).toMatchObject({
    status: 200,
    results: ['repeated', 'repeated'],
  });
  const record = (await world.record(id))!;
  expect(record).toMatchObject({
    state,
    lastError: expect.stringContaining('the e-mail bounced after'),
  });
  expect(record.history.filter((entry) => entry.state === state)).toHaveLength(1);
  expect(JSON.stringify(record.history)).not.toContain(application.email);

  await done('retry', id);
  await eventually('the second mail', () => mails().length === 2);
  await world.recordIn('completed', id);
  // As if the second e-mail went out some minutes after the bounce.
  const accounts = await world.accounts({ requestId: id });
  const [, last] = Object.keys(accounts[0]!.mail!.handOvers);
  await world.stores.accounts.updateOne(
    { requestId: id },
    { $set: { [`mail.handOvers.${last}.startedAt`]: later(new Date(), 120_000) } },
  );
  expect(await report(bounce)).toMatchObject({ status: 200, results: ['repeated'] });
  expect((await world.record(id))?.state).toBe('completed');
});

test('a report that is not signed, or faulty, is refused with a reason and changes nothing', async () => {
  const { id, messageId } = await completed();
  const bounce = { message_id: messageId, status: '5.1.1' };
  const body = JSON.stringify({ bounces: [bounce] });
  const refusals: [status: number, error: RegExp, body: string, signature?: string][] = [
    [401, /must be like t=SECONDS,v1=HEX/, body, ''],
    [401, /must be like/, body, `${signature(body)}, ${signature(body)}`],
    [401, /must be like/, body, `t=${seconds()},v1=${'é'.repeat(64)}`],
    [401, /must be like/, body, `t=1e9,v1=${'0'.repeat(64)}`],
    [401, /no signature is by a secret of ours/, body, `t=${seconds()},v1=${'0'.repeat(64)}`],
    [401, /no signature/, body, signature(body, 'another-secret-of-32-characters-or-more')],
    [401, /no signature/, body, signature(`${body} `)],
    [401, /no signature/, body, signature(body).replace(/^t=\d+/, `t=${seconds() - 100}`)],
    [401, /t is -40\d s from our time/, body, signature(body, SECRET, seconds() - 400)],
    [401, /t is [34]\d\d s/, body, signature(body, SECRET, seconds() + 400)],
    [413, /more than 262144 bytes/, 'x'.repeat(262_145)],
    [413, /more than 262144 bytes/, 'x'.repeat(10_000_000)],
    [400, /no JSON/, ''],
    [400, /no JSON/, '{'],
    [400, /expected object/, '[]'],
    ...(
      [
        [/bounces/, Array.from({ length: 501 }, () => bounce)],
        [/^bounces\.1: needs one of request_id/, [bounce, { status: '5.1.1' }]],
        [/needs one of request_id/, [{ ...bounce, request_id: id }]],
        [/needs at/, [{ request_id: id, status: '5.1.1' }]],
        [/^bounces\.0\.status: must be like 5\.1\.1/, [{ ...bounce, status: '550 5.1.1' }]],
        [/^bounces\.0\.at: must be like/, [{ ...bounce, at: 'yesterday' }]],
        [/Status/, [{ ...bounce, Status: '5.1.1' }]],
        [/message_id/, [{ message_id: 5 }]],
      ] as const
    ).map(([error, bounces]): [number, RegExp, string] => [
      400,
      error,
      JSON.stringify({ bounces }),
    ]),
  ];
  for (const [status, error, sent, given] of refusals)
    expect(await post(sent, given)).toMatchObject({ status, error: expect.stringMatching(error) });
  for (const [method, path] of [
    ['GET', '/bounces'],
    ['POST', '/metrics'],
  ] as const)
    expect((await fetch(processor.url + path, { method })).status).toBe(404);
  expect((await world.record(id))?.state).toBe('completed');

  // A rotation: either secret counts, and a sender may sign with both.
  expect((await post('{"bounces":[]}', signature('{"bounces":[]}', OLD))).status).toBe(200);
  // Whatever the type, the bytes are signed.
  for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'json', '', '/;;', 'é'])
    expect([type, (await post('{"bounces":[]}', undefined, undefined, type)).status]).toEqual([
      type,
      200,
    ]);
  const capitals = signature('{"bounces":[]}').replace(/[0-9a-f]{64}$/, (hex) => hex.toUpperCase());
  expect((await post('{"bounces":[]}', capitals)).status).toBe(200);
  const both = `${signature(body, 'not-known-yet')},${signature(body).split(',')[1]}`;
  expect(await post(body, both)).toMatchObject({ status: 200, results: ['undeliverable'] });
});

test('what cannot bounce is told apart, and what is not ready yet is sent again', async () => {
  const [erased, released, newer, early, well] = await Promise.all(
    Array.from({ length: 5 }, () => completed()),
  );
  await done('erase', erased!.id, '--yes');
  await done('account', 'release', released!.id, '--yes');
  const set = (id: string, $set: object) => world.stores.requests.updateOne({ _id: id }, { $set });
  await set(newer!.id, { schema: RECORD_SCHEMA + 1 });
  const dueAt = new Date(Date.now() + 600_000);
  await set(early!.id, { state: 'account_created', dueAt, claimedUntil: dueAt });
  const rejected = await submit(world, ingest, { ...newApplication(), ein: '1' });
  await world.recordIn('rejected', rejected);
  const of = (id: string) => ({ request_id: id, status: '5.1.1', at: now() });
  const unknown = [
    of(newId('req', new Date())),
    of('req_$ne'),
    of(rejected),
    of(erased!.id),
    { message_id: erased!.messageId },
    { message_id: '<1@provider.example>', at: now() },
    { email: 'nobody@example.com', at: now() },
    { email: '"quoted text"@[192.0.2.1]', at: now() },
  ];
  expect(await report(...unknown, of(released!.id))).toEqual({
    status: 200,
    retryAfter: null,
    results: [...unknown.map(() => 'unknown'), 'not_possible'],
  });
  const again = () =>
    world.metric(processor, 'partner_ingest_bounce_requests_total', { answer: 'later' });
  const before = await again();
  const mixed = [of(early!.id), of(newer!.id), of(well!.id)];
  const answer = {
    status: 503,
    retryAfter: '60',
    error: expect.stringContaining('send all again'),
  };
  expect(await report(...mixed)).toEqual({
    ...answer,
    results: ['later', 'later', 'undeliverable'],
  });
  expect(await report(...mixed)).toEqual({ ...answer, results: ['later', 'later', 'repeated'] });
  await set(early!.id, { state: 'completed' });
  await set(newer!.id, { schema: RECORD_SCHEMA });
  expect((await report(...mixed)).results).toEqual(['undeliverable', 'undeliverable', 'repeated']);

  const count = (result: string) =>
    world.metric(processor, 'partner_ingest_bounces_total', { result });
  expect(await count('unknown')).toBe(unknown.length);
  expect(await again()).toBe(before + 2);
});

test('one report may name an e-mail several times, in any spelling and order', async () => {
  const { id, messageId, application } = await completed();
  const first = { message_id: messageId, status: '5.1.1' };
  const bounces = [first, { email: application.email, at: now() }, { request_id: id, at: now() }];
  expect(await report(...bounces, first)).toMatchObject({
    status: 200,
    results: ['undeliverable', 'repeated', 'repeated', 'repeated'],
  });
  expect((await world.record(id))?.state).toBe('undeliverable');
});

test('bounces of one status for most applicants are about us, so they wait for an operator', async () => {
  const of = async (n: number, status = '5.1.2') => {
    const { id } = await completed({ email: `a-${newId('req', new Date())}@d${n % 3}.example` });
    return { request_id: id, status, at: now() };
  };
  const made: { request_id: string }[] = [];
  for (let n = 0; n < 8; n += 1) made.push(await of(n));
  const results = [];
  for (const bounce of made.slice(0, 6)) results.push(...((await report(bounce)).results ?? []));
  const ended = 'undeliverable';
  const waits = 'dead_lettered';
  expect(results).toEqual([ended, ended, ended, ended, waits, waits]);
  const [, , , , , waiting, , last] = made.map(({ request_id }) => request_id);
  expect((await world.record(waiting!))?.lastError).toMatch(/ \(5\.1\.2\), as most others did$/);
  const said = await done('bounce', '--request', last!, '--status', '5.1.2', '--as', 'webhook');
  expect(said.stdout).toMatch(/dead_lettered/);

  // One order takes up those that ended.
  const again = ['retry', '--state', ended, '--reason', '(5.1.2)', '--since', '1h', '--yes'];
  await done(...again);
  await world.recordIn('completed', made[0]!.request_id);

  // While most e-mails stay, as many are what their recipients' addresses are.
  const some: object[] = [];
  for (let n = 0; n < 12; n += 1) some.push(await of(n, '5.1.3'));
  const all = await report(...[0, 3, 4, 8, 11].map((n) => some[n]!));
  expect(new Set(all.results)).toEqual(new Set([ended]));
  // In one report, too.
  const whole = await report(...some);
  expect(new Set(whole.results)).toEqual(new Set(['repeated', waits]));
});

test('a full report of repeats is quick, and a flood is bounded', async () => {
  const { messageId } = await completed();
  const bounces = Array.from({ length: 500 }, () => ({ message_id: messageId, status: '5.1.1' }));
  const { status, results = [] } = await report(...bounces);
  expect([status, new Set(results), results.length]).toEqual([
    200,
    new Set(['undeliverable', 'repeated']),
    500,
  ]);
  const flood = await Promise.all(Array.from({ length: 60 }, () => report(...bounces)));
  expect(new Set(flood.map((answer) => answer.status))).toEqual(new Set([200, 429]));
  expect(flood.find((answer) => answer.status === 429)).toMatchObject({ retryAfter: '1' });
});

test('while the database stands still a report is answered 503, and a repeat changes it once', async () => {
  const own = await openOwnWorld({ environment: settings });
  try {
    const desk = await own.world.start('ingest');
    const { url } = await own.world.start('processor');
    const { id, messageId } = await operatorOf({ world: own.world, ingest: desk }).completed();
    const body = JSON.stringify({ bounces: [{ message_id: messageId, status: '5.1.1' }] });
    await own.mongo.signal('SIGSTOP');
    const stalled = await Promise.all(
      Array.from({ length: 5 }, () => post(body, signature(body), url)),
    );
    const statuses = stalled.map(({ status }) => String(status)).toSorted();
    expect(statuses).toEqual(['429', '429', '429', '503', '503']);
    await own.mongo.signal('SIGCONT');
    await eventually(
      'a report',
      async () => (await post(body, signature(body), url)).status === 200,
    );
    const record = await own.world.recordIn('undeliverable', id);
    expect(record.history.filter(({ state }) => state === 'undeliverable')).toHaveLength(1);
  } finally {
    await own.close();
  }
});

/* docs/bounces.mjs, with the payloads that the providers document. */

interface Sample {
  readonly providers: Readonly<
    Record<string, (body: Buffer, headers: object, key: string) => object[]>
  >;
  readonly report: (bounces: object[], to: { url: string; secret: string }) => Promise<void>;
}
const file = new URL('../../docs/bounces.mjs', import.meta.url).href;
const { providers, report: reportSample } = (await import(file)) as Sample;

const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'prime256v1' });
const sendgridKey = publicKey.export({ format: 'der', type: 'spki' }).toString('base64');
const login = { authorization: `Basic ${Buffer.from('user:password').toString('base64')}` };

function sendgridHeaders(body: string, at = seconds()): object {
  const signed = signWith('sha256', Buffer.from(`${at}${body}`), privateKey);
  return {
    'x-twilio-email-event-webhook-timestamp': String(at),
    'x-twilio-email-event-webhook-signature': signed.toString('base64'),
  };
}

function mailgunBody(event: object, at = seconds()): object {
  const token = 'a8ce0edb2dd8301dee6c2405235584e45aa91d1e9f979f3de0';
  const signed = createHmac('sha256', 'mailgun key').update(`${at}${token}`).digest('hex');
  return { signature: { timestamp: String(at), token, signature: signed }, 'event-data': event };
}

type Json = Readonly<Record<string, unknown>>;
/** Maps within differ by their own fields. */
const differing = (usual: Json, other: Json): Json => ({
  ...usual,
  ...Object.fromEntries(
    Object.entries(other).map(([name, value]) => {
      const isMap = typeof value === 'object' && !Array.isArray(value);
      return [name, isMap ? { ...(usual[name] as Json), ...value } : value];
    }),
  ),
});

interface Webhooks {
  readonly at: string;
  readonly usual: Json;
  readonly cases: readonly {
    readonly with?: Json;
    readonly only?: Json;
    readonly status?: string | null;
    readonly none?: true;
    /** It names an e-mail of ours. */
    readonly ours?: true;
  }[];
}
const OURS = '<acc_01m7yppxy4e01v3gzvkymsa33d.login-instructions@example.com>';
const webhooks = parse(
  read('test/integration/bounce-webhooks.yaml').replaceAll('OURS', OURS),
) as Readonly<Record<'ses' | 'postmark' | 'sendgrid' | 'mailgun', Webhooks>>;
const [postmark, mailgun] = [webhooks.postmark.usual, webhooks.mailgun.usual];

const cases = Object.entries(webhooks).flatMap(([provider, { at, usual, cases: all }]) =>
  all.map(({ with: other = {}, only, status, none, ours }) => {
    const whom = ours ? { message_id: OURS } : { email: 'jane@example.com' };
    const bounces = none ? [] : [{ ...whom, ...(status && { status }), at }];
    return [provider, only ?? differing(usual, other), bounces] as const;
  }),
);

test.each(cases)('%s: what webhook %# means', (provider, event, bounces) => {
  const events = provider === 'sendgrid' ? [event, { ...event, event: 'deferred' }] : event;
  const body = JSON.stringify(provider === 'mailgun' ? mailgunBody(event) : events);
  const known: Readonly<Record<string, readonly [headers: object, key: string]>> = {
    ses: [{}, ''],
    postmark: [login, 'user:password'],
    sendgrid: [sendgridHeaders(body), sendgridKey],
    mailgun: [{}, 'mailgun key'],
  };
  const [headers, key] = known[provider]!;
  expect(providers[provider]!(Buffer.from(body), headers, key)).toEqual(bounces);
});

test.each([
  ['postmark', JSON.stringify(postmark), {}, 'user:password'],
  ['postmark', JSON.stringify(postmark), login, 'user:other'],
  ['sendgrid', '[]', {}, sendgridKey],
  ['sendgrid', '[]', sendgridHeaders('[{}]'), sendgridKey],
  ['sendgrid', '[]', sendgridHeaders('[]', seconds() - 400), sendgridKey],
  ['mailgun', JSON.stringify(mailgunBody(mailgun)), {}, 'other key'],
  ['mailgun', JSON.stringify(mailgunBody(mailgun, seconds() - 400)), {}, 'mailgun key'],
  ['mailgun', '{"event-data":{}}', {}, 'mailgun key'],
] as const)('%s: webhook %# of another sender is refused', (provider, body, headers, key) => {
  expect(() => providers[provider]!(Buffer.from(body), headers, key)).toThrow(/proves no sender/);
});

test.each(['ses', 'toString', 'mailjet'])('the sample listens for no %s', async (provider) => {
  const env = { PROVIDER: provider, PROVIDER_KEY: 'key', BOUNCES_URL: 'http://127.0.0.1:1/' };
  const child = spawn(process.execPath, ['docs/bounces.mjs'], {
    cwd: ROOT,
    timeout: 10_000,
    env: { ...env, BOUNCE_SECRET: SECRET, PORT: '0' },
  });
  const [told, [code]] = await Promise.all([child.stderr.toArray(), once(child, 'exit')]);
  expect([code, told.join('')]).toEqual([1, expect.stringContaining('PROVIDER must be')]);
});

test('the sample takes a webhook and reports it, and asks for it again where that fails', async () => {
  const { id, application } = await completed();
  let isAway = true;
  // In front of the processor, so that the report fails at first.
  const front = createServer((request, response) => {
    if (isAway) return void response.writeHead(502).end();
    const headers = { 'bounce-signature': String(request.headers['bounce-signature']) };
    void request.toArray().then(async (parts: Buffer[]) => {
      const body = Buffer.concat(parts);
      const answer = await fetch(`${processor.url}/bounces`, { method: 'POST', headers, body });
      response.writeHead(answer.status).end(await answer.text());
    });
  });
  const port = await listen(front);
  const probe = createServer();
  const own = await listen(probe);
  await new Promise((resolve) => probe.close(resolve));
  const child = spawn(process.execPath, ['docs/bounces.mjs'], {
    cwd: ROOT,
    stdio: ['ignore', 'ignore', 'pipe'],
    env: {
      PROVIDER: 'postmark',
      PROVIDER_KEY: 'user:password',
      BOUNCES_URL: `http://127.0.0.1:${port}/bounces`,
      BOUNCE_SECRET: SECRET,
      PORT: String(own),
    },
  });
  const told: string[] = [];
  child.stderr.on('data', (text: Buffer) => void told.push(String(text)));
  try {
    const url = `http://127.0.0.1:${own}`;
    const body = JSON.stringify({ ...postmark, Email: application.email, BouncedAt: now() });
    const call = async (headers: Record<string, string>, sent = body): Promise<number> =>
      (await fetch(url, { method: 'POST', headers, body: sent })).status;
    await eventually('the sample', () => call(login).catch(() => undefined));
    expect(await call(login)).toBe(503);
    expect(await call({})).toBe(401);
    expect(await call(login, 'x'.repeat(1_100_000))).toBe(413);
    isAway = false;
    expect(await call(login)).toBe(200);
    expect(await call(login)).toBe(200);
    expect((await world.record(id))?.state).toBe('undeliverable');
    expect(told.join('')).not.toContain(application.email);
  } finally {
    front.close();
    child.kill();
    await once(child, 'exit');
  }
  const other = await completed();
  const recipient = { emailAddress: other.application.email, status: '5.1.1' };
  const bounce = { timestamp: now(), bouncedRecipients: [recipient] };
  const event = differing(webhooks.ses.usual, { bounce });
  const bounces = providers['ses']!(Buffer.from(JSON.stringify(event)), {}, '');
  await reportSample(bounces, { url: `${processor.url}/bounces`, secret: SECRET });
  expect((await world.record(other.id))?.state).toBe('undeliverable');
});
