/**
 * Erasure of one applicant: nothing of theirs is left in the database, nobody else's is touched,
 * and audit agrees.
 */
import { afterAll, afterEach, expect, test } from '@jest/globals';
import { Binary } from 'mongodb';
import { ACCOUNTS } from '../../internal/account/account.ts';
import { AccountStore } from '../../internal/account/account-store.ts';
import { later, systemClock } from '../../internal/platform/process/clock.ts';
import { pause } from '../../internal/platform/process/deadline.ts';
import { createMongo } from '../../internal/platform/stores/mongo.ts';
import { CLAIM_MS } from '../../internal/submission/submission.ts';
import { operatorWorld } from '../support/cli.ts';
import { send } from '../support/http.ts';
import { bodies, expectAnswer } from '../support/ingest.ts';
import { startMongoWire } from '../support/mongo-wire.ts';
import { submit } from '../support/processing.ts';
import { newRecord } from '../support/records.ts';
import { eventually } from '../support/wait.ts';
import { newApplication, requestIdOf } from '../support/world.ts';

const { world, ingest, cli, completed, done, failing } = await operatorWorld();

const wire = await startMongoWire(world.stores.mongodbUri);
/** Inserts that hang. */
const HUNG = 30;
const client = createMongo(wire.url, 'hangs', { socketTimeoutMS: 2_000, maxPoolSize: HUNG });

afterEach(() => world.mail.setFault(undefined));
afterAll(async () => {
  await client.close();
  await wire.close();
});

const { accounts } = world.stores;

/** Every document of the database as text, bodies decoded, by collection. */
async function everythingStored(): Promise<string> {
  const texts: string[] = [];
  for (const { name } of await world.stores.db.listCollections().toArray()) {
    for (const document of await world.stores.db.collection(name).find().toArray()) {
      texts.push(`${name} ${JSON.stringify(document)}`);
      const body: unknown = document['body'];
      if (body instanceof Binary)
        texts.push(Buffer.from(body.buffer).toString('latin1').replaceAll('\0', ''));
    }
  }
  return texts.join('\n').toLowerCase();
}

/** A worker may hold the claim, which refuses the retry, or may complete the request first. */
async function completedByRetry(id: string): Promise<void> {
  await eventually('its completion', async () => {
    await cli('retry', id);
    return (await world.record(id))?.state === 'completed';
  });
}

async function malformed(body: string | Buffer): Promise<string> {
  return requestIdOf(await send(ingest.url, { key: world.key, body }));
}

test('erase by address removes the account and all personal data, and keeps the trail', async () => {
  const person = {
    email: 'Erika.Mustermann@example.com',
    business_name: 'Mustermann Erben',
    ein: '987654321',
  };
  const email = person.email.toLowerCase();
  const first = await submit(world, ingest, person);
  await world.recordIn('completed', first);
  const theirs = [
    first,
    await submit(world, ingest, person),
    await submit(world, ingest, { ...person, ein: 'typo' }),
    await malformed(`{"email": "${email}", `),
    await malformed(`email=${encodeURIComponent(email)}&ein=1`),
    await malformed(Buffer.from(`["${email}"]`, 'utf16le')),
    await submit(world, ingest, { Email: email, business_name: 'Mustermann', ein: '111111111' }),
    await submit(world, ingest, {
      ...newApplication(),
      email: `Erika Mustermann <${person.email}>`,
    }),
  ];
  const others = [
    await malformed(`["${email}.au"]`),
    await submit(world, ingest, { ...newApplication(), email: `mrs-${email}` }),
  ];
  const theirKey = { 'idempotency-key': '"a-key-of-another-applicant"' };
  const repeated = {
    key: world.key,
    body: JSON.stringify({ ...newApplication(), contact: email }),
    headers: theirKey,
  };
  const mentioning = requestIdOf(await send(ingest.url, repeated));
  await eventually(
    'all settled',
    async () => (await world.records({ dueAt: { $exists: true } })).length === 0,
  );
  const untouched = await world.records({ _id: { $in: others } });

  const dry = await cli('erase', '--email', person.email.toUpperCase());
  expect(dry).toMatchObject({ code: 0 });
  expect(dry.stdout).toContain(`${theirs.length + 2} found; nothing was changed`);
  expect(await everythingStored()).toContain(email);

  const erased = await cli('erase', '--email', person.email, '--yes', '--why', 'request of today');
  expect(erased).toMatchObject({ code: 0 });
  const left = (await everythingStored()).replaceAll(/\S*mrs-erika[^"\s]*|erika[^"\s]*\.au/g, '');
  for (const trace of [email, 'mustermann', '987654321']) expect(left).not.toContain(trace);

  expect(await world.records({ _id: { $in: others } })).toEqual(untouched);
  for (const id of theirs) {
    const record = await world.record(id);
    expect(record).toMatchObject({
      erasedAt: expect.any(Date),
      history: expect.any(Array),
      bodyBytes: expect.any(Number),
    });
    expect(record).not.toHaveProperty('bodySha256');
  }
  expect(await world.record(mentioning)).toMatchObject({
    state: 'completed',
    applicant: expect.any(Object),
  });
  expect(await world.record(mentioning)).not.toHaveProperty('body');
  // The answer to the partner of another applicant stays the same.
  expectAnswer(await send(ingest.url, repeated), 202, bodies.accepted(mentioning));
  expectAnswer(
    await send(ingest.url, { ...repeated, body: '{"a":"b"}' }),
    422,
    bodies.idempotencyMismatch(mentioning),
  );
  const [noted] = await world.trail({ why: 'request of today', result: 'done' });
  expect(noted).toMatchObject({ action: 'erase', by: 'test-operator' });
  expect((await cli('show', first)).stdout).toContain('personal data erased');
  expect(await cli('retry', first)).toMatchObject({ code: 1 });
  expect(await cli('erase', '--email', person.email, '--yes')).toMatchObject({
    code: 1,
    stdout: 'nothing holds this applicant\n',
  });
  await done('audit');

  // An erased applicant may apply again.
  await world.recordIn('completed', await submit(world, ingest, person));
});

test('erase by request rejects an open request, which then mails nothing', async () => {
  const { id, application } = await failing();
  await done('erase', id, '--yes');
  world.mail.setFault(undefined);
  const record = await world.record(id);
  expect(record).toMatchObject({
    state: 'rejected',
    reasons: [{ code: 'discarded' }],
    expiresAt: expect.any(Date),
    erasedAt: expect.any(Date),
  });
  expect(await accounts.countDocuments({ requestId: id, erasedAt: { $exists: false } })).toBe(0);
  expect(world.mail.mailsTo(application.email)).toHaveLength(0);
  await done('audit');

  const again = await cli('erase', id);
  expect(again).toMatchObject({ code: 1 });
  expect(again.stderr).toContain('was erased before');
});

test('a claimed request stays whole, and erase says that it is not done', async () => {
  const { id, application } = await completed();
  const { requests } = world.stores;
  // A worker is creating the account; the record does not show it yet.
  const until = new Date(Date.now() + CLAIM_MS);
  await requests.updateOne(
    { _id: id },
    {
      $set: { state: 'recorded', dueAt: until, claimedUntil: until },
      $unset: { accountId: true, applicant: true, expiresAt: true },
    },
  );
  const [record, account] = [await world.record(id), await accounts.findOne({ requestId: id })];
  for (const words of [[id], ['--email', application.email]]) {
    const held = await cli('erase', ...words, '--yes');
    expect(held).toMatchObject({
      code: 1,
      stdout: expect.stringContaining('0 done'),
      stderr: expect.stringContaining('run it again in a minute'),
    });
    expect(await world.record(id)).toEqual(record);
    expect(await accounts.findOne({ requestId: id })).toEqual(account);
  }
  await requests.updateOne({ _id: id }, { $unset: { claimedUntil: true } });
  await done('erase', id, '--yes');
  expect(await everythingStored()).not.toContain(application.email);
});

test('an account whose insert hangs in the database while its request is erased never lands', async () => {
  // A store each, or their inserts would share a command.
  const workerOf = () =>
    new AccountStore({ db: client.db(world.stores.database), clock: systemClock });
  const pending = wire.hold(({ insert }) => insert === ACCOUNTS);
  const dueAt = later(new Date(), 3_600_000);
  const people = Array.from({ length: HUNG }, () => newApplication());
  const ids = await Promise.all(
    people.map(async ({ email, business_name: businessName, ein }) => {
      const application = { email, businessName, ein };
      const record = newRecord({ state: 'recorded', dueAt, applicant: application });
      await world.stores.requests.insertOne(record);
      const owner = { requestId: record._id, partnerId: 'demo' };
      const worker = workerOf();
      const account = worker.draft(application, owner);
      await expect(worker.create(account)).rejects.toThrow();
      return record._id;
    }),
  );
  expect(pending).toHaveLength(HUNG);
  for (const [index, id] of ids.entries()) {
    const landing = pause(Math.random() * 200).then(pending[index]);
    const [erased] = await Promise.all([cli('erase', id, '--yes'), landing]);
    expect(erased).toMatchObject({ code: 0 });
  }
  const left = await everythingStored();
  for (const { email, business_name: name } of people) {
    expect(left).not.toContain(email.toLowerCase());
    expect(left).not.toContain(name.toLowerCase());
  }
  await done('audit');
});

test('two erasures of one request at once leave its place', async () => {
  for (const { id } of await Promise.all(Array.from({ length: 5 }, completed))) {
    await Promise.all([1, 2, 3].map(() => cli('erase', id, '--yes')));
    expect(await world.record(id)).toMatchObject({ erasedAt: expect.any(Date) });
    expect(await accounts.find({ requestId: id }).toArray()).toEqual([
      expect.objectContaining({ erasedAt: expect.any(Date) }),
    ]);
  }
  await done('audit');
});

test('erase keeps the body of an open request of another applicant that mentions this one', async () => {
  const { id: named, application: person } = await failing();
  const other = { ...newApplication(), contact: person.email };
  const { id: mentioning } = await failing(other);
  const early = await cli('erase', named, '--yes');
  expect(early).toMatchObject({
    code: 1,
    stdout: expect.stringMatching(new RegExp(`${named} .*comes last`)),
    stderr: expect.stringContaining('run it again'),
  });
  expect(early.stdout).toContain('still open');
  for (const id of [named, mentioning]) expect((await world.record(id))?.body).toBeDefined();

  world.mail.setFault(undefined);
  await completedByRetry(mentioning);
  expect(world.mail.mailsTo(other.email)).toHaveLength(1);
  await done('erase', named, '--yes');
  expect(await everythingStored()).not.toContain(person.email);
});

test('erase by EIN finds it with a hyphen and as a number, and removes the user agent', async () => {
  const application = { ...newApplication(), business_name: 'Number & Co', ein: '112233445' };
  const headers = { 'user-agent': `curl of ${application.email}` };
  const body = JSON.stringify(application);
  const id = requestIdOf(await send(ingest.url, { key: world.key, body, headers }));
  expect(await world.recordIn('completed', id)).toMatchObject({ userAgent: headers['user-agent'] });
  const broken = await malformed('{"ein": "11-2233445"');
  const asNumber = await submit(world, ingest, { ...application, ein: 112_233_445 });
  const longer = await malformed('["1112233445"]');
  expect(await world.recordIn('rejected', asNumber)).toMatchObject({
    applicant: { ein: '112233445' },
  });
  const erased = await cli('erase', '--ein', '11-2233445', '--yes', '--json');
  const { listed } = erased.json<{ listed: { id: string }[] }>();
  expect(listed.map((entry) => entry.id)).toEqual(expect.arrayContaining([id, broken, asNumber]));
  const left = await everythingStored();
  for (const trace of [application.email, 'number & co', '"112233445"'])
    expect(left).not.toContain(trace);
  expect(await world.record(longer)).toHaveProperty('body');
});

test('a released account is found when no request of it is left', async () => {
  // Its address is found in other letters too.
  const application = { ...newApplication(), email: `Released.${newApplication().email}` };
  const id = await submit(world, ingest, application);
  await world.recordIn('completed', id);
  await done('account', 'release', id, '--yes');
  await world.stores.requests.deleteOne({ _id: id });
  const words = ['erase', '--email', application.email];
  expect((await cli(...words)).stdout).toMatch(/account .* released .*would be erased/);
  await done(...words, '--yes');
  expect(await everythingStored()).not.toContain(application.email.toLowerCase());
});

test('erase names the kept requests with the same EIN or address', async () => {
  const { application: person } = await completed();
  // Rejected as a duplicate, and it mentions the first address, so it loses its body.
  const other = { ...person, email: `other-${person.email}`, contact: person.email };
  const second = await submit(world, ingest, other);
  await world.recordIn('rejected', second);
  const dry = await cli('erase', '--email', person.email);
  expect(dry.stderr).toContain(`not erased, but of the same EIN: ${second}: if they are the same`);
  const erased = await cli('erase', '--email', person.email, '--yes', '--json');
  expect(erased).toMatchObject({ code: 0 });
  expect(erased.json()).toMatchObject({ ein_elsewhere: [second] });
  expect(await world.record(second)).toMatchObject({ applicant: { ein: person.ein } });
  const third = await submit(world, ingest, { ...newApplication(), email: other.email });
  await world.recordIn('completed', third);
  const byEin = await cli('erase', '--ein', person.ein, '--yes');
  expect(byEin).toMatchObject({ code: 0 });
  expect(byEin.stderr).toContain(`not erased, but of the same e-mail address: ${third}:`);
  expect((await cli('erase', '--email', other.email, '--yes')).stderr).not.toContain('not erased');
});
