/** `show` and `find` on the records of a real run. */
import { userInfo } from 'node:os';
import { PassThrough } from 'node:stream';
import { expect, test } from '@jest/globals';
import type { TrailEntry } from '../../internal/operators/trail/trail.ts';
import { OPERATOR_AUDIT } from '../../internal/self-audit/walk.ts';
import { runCli as runCliHere } from '../../cmd/cli/wire.ts';
import { operatorWorld, type Ran } from '../support/cli.ts';
import { firstIdAt } from '../../internal/platform/stores/ids.ts';
import { send } from '../support/http.ts';
import { submit } from '../support/processing.ts';
import { newRecord, recordOf } from '../support/records.ts';
import { newApplication, requestIdOf } from '../support/world.ts';
import { type SubmissionRecord } from '../../internal/submission/submission.ts';

const { world, ingest, cli, completed, done } = await operatorWorld();

const trail = () => world.stores.db.collection<TrailEntry>(OPERATOR_AUDIT);

test('show prints a masked timeline and the next commands, and notes each --reveal', async () => {
  const { id, application } = await completed();
  const shown = await cli('show', id);
  expect(shown).toMatchObject({ code: 0, stderr: '' });
  expect(shown.stdout).toContain(`${id}  completed`);
  expect(shown.stdout).toMatch(/applicant +B\*\*\*, a\*\*\*@e\*\*\*\.com, EIN \*{5}\d{4}/);
  const steps = [
    'recorded, answered 202',
    'account created',
    'e-mail handed to the mail server: accepted (250',
    'completed:',
  ];
  const places = steps.map((step) => shown.stdout.indexOf(step));
  expect(places).toEqual(places.toSorted((one, other) => one - other));
  expect(places[0]).toBeGreaterThan(0);
  expect(shown.stdout).toContain(`partner-ingest resend ${id}`);
  for (const secret of [application.email, application.ein, application.business_name]) {
    expect(shown.stdout).not.toContain(secret);
  }
  // Output to a pipe has no colours.
  expect(shown.stdout).not.toContain('\u001b');

  const { accountId } = (await world.record(id)) ?? {};
  // A completed request shows no outage from before its e-mail.
  const lastError = 'the mail server could not be used (EAUTH AUTH PLAIN 535)';
  await world.stores.requests.updateOne({ _id: id }, { $set: { lastError } });
  expect((await cli('find', '--state', 'completed')).stdout).not.toContain('EAUTH');
  expect((await cli('show', id)).stdout).not.toContain('EAUTH');
  expect((await cli('show', accountId ?? '')).stdout).toContain(`${id}  completed`);
  expect(await trail().find({ requestId: id }).toArray()).toEqual([]);
  expect((await cli('show', application.email.toUpperCase())).stdout).toContain(`${id}  completed`);
  expect(await trail().findOneAndDelete({ requestId: id })).toMatchObject({
    action: 'show by address',
  });

  const jane = ['--as', 'jane', '--why', 'ticket 4711'];
  const revealed = await cli('show', id, '--reveal', '--json', ...jane);
  expect(revealed.json()).toMatchObject({
    request_id: id,
    applicant: application,
    body: JSON.stringify(application),
    body_sha256: expect.any(String),
  });
  expect(await trail().find({ requestId: id }).toArray()).toMatchObject([
    {
      _id: expect.stringMatching(/^opr_/),
      at: expect.any(Date),
      by: 'jane',
      nameFrom: '--as',
      why: 'ticket 4711',
      action: 'show --reveal',
      requestId: id,
      result: 'done',
      expiresAt: expect.any(Date),
    },
  ]);
  expect((await cli('show', id)).stdout).toContain(
    'operator jane: looked at the personal data (ticket 4711)',
  );
});

test('requests that ended without an account show why', async () => {
  const before = new Date();
  const shows = async (id: string, ...words: string[]) => {
    const { stdout } = await cli('show', id);
    for (const word of words) expect(stdout).toContain(word);
  };
  const post = (body: string, key = world.key) => send(ingest.url, { key, body });
  const faulty = requestIdOf(
    await post('{"email":"Nobody Here","business_name":" ","ein":"12-3456"}'),
  );
  await world.recordIn('rejected', faulty);
  const blank = 'business_name must have a letter or a digit.';
  await shows(faulty, '3 reasons', 'email', 'invalid_format', 'blank', blank);
  expect((await cli('find', '--email', ' nobody HERE', '--json')).json()).toMatchObject([
    { request_id: faulty },
  ]);

  const { id: first, application } = await completed();
  const second = await submit(world, ingest, application);
  await world.recordIn('rejected', second);
  await shows(second, `See ${first}.`);

  const malformed = requestIdOf(await post('{"email": "jane@example.com", '));
  await shows(malformed, `${malformed}  malformed`, '30 bytes, not a JSON object');
  await shows(malformed, '{"email": "xxxx@xxxxxxx.xxx",');
  await shows(second, 'Of the same applicant', `${first}  `);
  const count = ['find', '--since', before.toISOString(), '--count', '--json'];
  const kind = { partner: 'demo', state: 'rejected', count: 1 };
  expect((await cli(...count)).json()).toEqual(
    expect.arrayContaining([
      { ...kind, field: 'ein', why: 'invalid_format', newest: faulty },
      { ...kind, field: 'email', why: 'duplicate_email', newest: second },
      { ...kind, field: '', state: 'malformed', why: '', newest: malformed },
    ]),
  );
  const refused = String((await post('{}', 'wrong-key-of-some-length')).headers['x-request-id']);
  await world.recordIn('refused', refused);
  await shows(refused, 'nobody known');
});

test('a request that waits for an earlier one is found by its applicant, and says so', async () => {
  const application = newApplication();
  const dueAt = new Date(Date.now() + 3_600_000);
  const waiting = { version: 1, dueAt };
  const [first, second] = [{}, { waitsSince: new Date() }].map((more) =>
    recordOf(application, new Date(), { ...waiting, ...more }),
  );
  await world.stores.requests.insertMany([first!, second!]);
  const found = await cli('find', '--ein', application.ein, '--json');
  expect(found.json()).toEqual(
    expect.arrayContaining(
      [first, second].map((one) => expect.objectContaining({ request_id: one!._id })),
    ),
  );
  const { stdout } = await cli('show', second!._id);
  expect(stdout).toContain('an earlier request of the applicant, since');
  expect(stdout).toContain(`${first!._id}  `);
  await world.stores.requests.deleteMany({ _id: { $in: [first!._id, second!._id] } });
});

test('an unknown id exits 1 and shows what is known of it, or the form of an id', async () => {
  const LOOKS = 'an id is req_ and 26 lower-case letters and digits, a reference number is 16 of';
  const cases: [given: string, suggestion: string][] = [
    ['nonsense', LOOKS],
    ['req_01arz3ndektsv4rrffq69g5fav', 'it was given out 2016-07-30'],
    ['req_7zzzzzzzzzzzzzzzzzzzzzzzzz', 'has not come yet'],
    ['0000-0000-0000-0000', LOOKS],
    ['acc_01arz3ndektsv4rrffq69g5fav', 'there is no account'],
  ];
  for (const [given, suggestion] of cases) {
    const { code, stdout, stderr } = await cli('show', given);
    expect({ given, code, stdout, lines: stderr.trimEnd().split('\n').length }).toEqual({
      given,
      code: 1,
      stdout: '',
      lines: 1,
    });
    expect(stderr).toContain(suggestion);
  }
  const unknown = await cli('show', 'nobody@example.com');
  expect(unknown).toMatchObject({ code: 1, stdout: '' });
  expect(unknown.stderr).toContain('there is no request of this address');
});

test('control characters from partners do not reach the terminal', async () => {
  const record = newRecord({
    state: 'dead_lettered',
    history: [
      { state: 'dead_lettered', at: new Date(), attempt: 27, reason: 'bad \u001b[2J\u0007 answer' },
    ],
    applicant: { email: '\u001b[31mx@y.example', ein: '123456789', businessName: '\u202etxt' },
    lastError: '\u001b]0;owned\u0007',
    // What is stored may be wrong.
    partnerId: 'acme\u001b[2J',
    reasons: [{ field: 'ein', code: 'unknown_mailbox', message: '\u202etxt\u009b2J' }],
  });
  await world.stores.requests.insertOne(record);
  const shown = await cli('show', record._id, '--reveal');
  expect(shown.code).toBe(0);
  // oxlint-disable-next-line no-control-regex -- the test looks for control characters
  const hidden = /[\u0000-\u001f\u007f-\u009f\u202a-\u202e]/;
  expect(shown.stdout.replaceAll('\n', '')).not.toMatch(hidden);
  expect(shown.stdout).toContain('�[2J� answer');
});

test('find filters, limits and prints JSON, and exits with 1 if nothing is found', async () => {
  const before = new Date().toISOString();
  const three = [await completed(), await completed(), await completed()];
  const [first, ids] = [three[0]!.application, three.map(({ id }) => id)];

  const found = async (...words: string[]) =>
    (await cli('find', ...words, '--json'))
      .json<{ request_id: string }[]>()
      .map((entry) => entry.request_id);
  const states = ['--partner', 'demo', '--state', 'completed'];
  expect(await found(...states, '--since', before)).toEqual(ids.toReversed());
  expect(await found('--name', first.business_name.toUpperCase().slice(2))).toEqual([ids[0]]);
  const ein = `${first.ein.slice(0, 2)}-${first.ein.slice(2)}`;
  expect(await found('--ein', ein)).toEqual([ids[0]]);
  const two = await cli('find', '--since', before, '--limit', '2');
  expect(two.stdout.trimEnd().split('\n')).toHaveLength(3);
  expect(two.stderr).toContain('there are more');
  expect(two.stdout).not.toMatch(/applicant-/);
  expect(await cli('find', '--until', '2000-01-01')).toMatchObject({
    code: 1,
    stdout: '',
    stderr: 'nothing found\n',
  });
  expect(await cli('find', '--name', '.*')).toMatchObject({ code: 1 });
});

test('an idempotency key finds its request, of its partner only, and shows whether it was used again', async () => {
  const [key, body] = ['8e03978e-40d5-43dd-bc93-6894a57f9324', JSON.stringify(newApplication())];
  const post = () =>
    send(ingest.url, { key: world.key, body, headers: { 'idempotency-key': `"${key}"` } });
  const id = requestIdOf(await post());
  const find = (partner: string) =>
    cli('find', '--partner', partner, '--idempotency-key', key, '--json');
  expect((await find('demo')).json()).toMatchObject([
    { request_id: id, idempotency_key: true, sent_again: false },
  ]);
  expect((await cli('show', id)).stdout).toMatch(/idempotency +with a key\n/);
  await post();
  const shown = await cli('show', id);
  expect(shown.stdout).toMatch(/idempotency +with a key, and sent again with it\n/);
  expect((await find('demo')).json()).toMatchObject([
    { request_id: id, idempotency_key: true, sent_again: true },
  ]);
  expect(await find('dormant')).toMatchObject({ code: 1, stdout: '[]\n' });
  expect((await cli('show', await submit(world, ingest, newApplication()))).stdout).not.toContain(
    'idempotency',
  );
});

test('export prints each match on a masked line, and notes each reveal and personal search', async () => {
  const { id, application } = await completed();
  const lines = (ran: Ran) =>
    ran.stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as { request_id: string; state: string });
  const everything = await cli('export');
  expect(everything.code).toBe(0);
  expect(lines(everything)).toHaveLength(await world.stores.requests.countDocuments());
  expect(everything.stdout).not.toContain(application.email);

  const why = ['--why', 'request for access'];
  const revealed = await cli('export', '--email', application.email, '--reveal', ...why);
  expect(lines(revealed)).toMatchObject([
    { request_id: id, applicant: { email: application.email } },
  ]);
  expect(await trail().findOne({ action: 'export --email --reveal' })).toMatchObject({
    by: 'test-operator',
    nameFrom: '$USER',
    why: why[1],
  });
  await done('erase', '--email', application.email);
  expect(await trail().findOne({ action: 'erase without --yes' })).not.toBeNull();
  // The note masks what was searched for; with --json it goes to standard error.
  const found = await cli('find', '--email', application.email, '--json', '--why', 'ticket 12');
  expect(found.stdout).not.toContain('body_sha256');
  const entry = await trail().findOne({ why: 'ticket 12' });
  expect(entry).toMatchObject({ action: 'find --email', requestId: id });
  expect(JSON.stringify(entry)).not.toContain(application.email);
  expect(JSON.parse(found.stderr)).toMatchObject({
    operator_audit: { _id: entry?._id, action: 'find --email' },
  });
});

test('audit --since reads what came since then, and nothing older', async () => {
  const old = new Date(Date.now() - 2 * 86_400_000);
  const record = newRecord({ state: 'unheard of' as SubmissionRecord['state'], receivedAt: old });
  await world.stores.requests.insertOne({ ...record, _id: firstIdAt('req', old) });
  const everything = await cli('audit');
  expect(everything.stdout).toContain(firstIdAt('req', old));
  const bounded = await cli('audit', '--since', '1d');
  expect(bounded).toMatchObject({ code: 0 });
  expect(bounded.stdout).not.toContain('unheard of');
});

test('a terminal gets one readable line of what the trail notes, with where the name comes from', async () => {
  const note = async (env: object, stderr: object, ...words: string[]) => {
    const said = Object.assign(new PassThrough(), stderr);
    const quiet = { stdout: new PassThrough().resume() };
    const terminal = { ...quiet, stderr: said, env: { ...world.environment, ...env } };
    await runCliHere(['find', '--email', 'nobody@example.com', ...words], terminal);
    return (await said.end().toArray()).join('');
  };
  const [why, { username }] = ['a reason of its own', userInfo()];
  const terminal = { isTTY: true };
  expect(await note({ USER: 'tom' }, terminal, '--as', 'jane', '--why', why)).toBe(
    `noted in operator_audit: find --email, by jane (--as), because: ${why}\nnothing found\n`,
  );
  expect(await note({ USER: 'tom' }, terminal)).toContain('by tom ($USER)');
  expect(await note({ USER: '' }, terminal)).toContain(`by ${username} (account)`);
  // Without a terminal, standard error gets the whole entry.
  expect(JSON.parse((await note({}, {}, '--why', why)).split('\n')[0]!)).toMatchObject({
    operator_audit: { action: 'find --email', why, by: username, nameFrom: 'account' },
  });
});
