/** Idempotency keys over two ingest processes: one record for each key, and equal answers. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { ServiceProcess } from '../../deploy/local/processes.ts';
import { withDeadline } from '../../internal/platform/deadline.ts';
import { SUBMISSIONS } from '../../internal/submission/submission.ts';
import { send, type Answer } from '../support/http.ts';
import { bodies, expectAnswer } from '../support/ingest.ts';
import { startReplicaSet } from '../support/replica-set/replica-set.ts';
import { HANG_MS, eventually } from '../support/wait.ts';
import { newApplication, openWorld, requestIdOf, type World } from '../support/world.ts';

const PAIRS = 200;
let world: World;
let ingests: readonly [ServiceProcess, ServiceProcess];

beforeAll(async () => {
  world = await openWorld();
  ingests = await Promise.all([world.spawn('ingest'), world.spawn('ingest')]);
});
afterAll(() => world.close());

const post = (ingest: number, key: string, body: string): Promise<Answer> =>
  send(ingests[ingest % 2]!.url, { key: world.key, body, headers: { 'idempotency-key': key } });
const newBody = (): string => JSON.stringify(newApplication());

let keys = 0;
const newKey = (): string => `"key-${(keys += 1)}"`;

/** Asks again after a 500, which a busy machine may give. */
async function heard(ingest: number, key: string, body: string): Promise<Answer> {
  for (let tries = 1; ; tries += 1) {
    const answer = await post(ingest, key, body);
    if (answer.status !== 500 || tries === 10) return answer;
  }
}

/** Sends both bodies of each pair at once, to both processes. */
const race = (
  pairs: readonly (readonly [key: string, one: string, other: string])[],
): Promise<Answer[][]> =>
  Promise.all(
    pairs.map(([key, one, other]) => Promise.all([heard(0, key, one), heard(1, key, other)])),
  );

const live = (): Promise<unknown[]> => world.records({ state: { $ne: 'withdrawn' } });

const recordsOf = async (answers: readonly Answer[]) =>
  world.records({ _id: { $in: answers.map(requestIdOf) } });

test(`${PAIRS} pairs of equal requests at once: one record for each key, and equal answers`, async () => {
  const before = (await live()).length;
  const answers = await race(
    Array.from({ length: PAIRS }, () => {
      const body = newBody();
      return [newKey(), body, body] as const;
    }),
  );
  for (const [one, other] of answers) {
    const id = requestIdOf(one!);
    expectAnswer(one!, 202, bodies.accepted(id));
    expectAnswer(other!, 202, bodies.accepted(id));
    expect(
      [one, other].filter((answer) => answer!.headers['idempotent-replayed'] === 'true'),
    ).toHaveLength(1);
  }
  await eventually('one record for each key', async () => (await live()).length - before === PAIRS);
  expect((await recordsOf(answers.flat())).every(({ adopted }) => adopted === true)).toBe(true);
});

test(`${PAIRS} pairs of unequal requests at once: one is accepted, the other is told of it by a 422`, async () => {
  const before = (await live()).length;
  const pairs = Array.from({ length: PAIRS }, () => [newKey(), newBody(), newBody()] as const);
  const answers = await race(pairs);
  for (const [index, pair] of answers.entries()) {
    expect(pair.map(({ status }) => `${status}`).toSorted()).toEqual(['202', '422']);
    const accepted = pair.findIndex(({ status }) => status === 202);
    const id = requestIdOf(pair[accepted]!);
    expectAnswer(pair[1 - accepted]!, 422, bodies.idempotencyMismatch(id));
    const [record] = await recordsOf([pair[accepted]!]);
    expect(Buffer.from(record!.body!.value()).toString()).toBe(pairs[index]![1 + accepted]);
  }
  await eventually('one record for each key', async () => (await live()).length - before === PAIRS);
});

test('a repeat of which nobody knows whether the first one is adopted gets a closed connection', async () => {
  const set = await startReplicaSet(world.stores.mongodbUri);
  try {
    const ingest = await world.spawn('ingest', { MONGODB_URI: (await set.door()).url });
    const options = { key: world.key, body: newBody(), headers: { 'idempotency-key': newKey() } };
    const first = await send(ingest.url, options);
    expectAnswer(first, 202, bodies.accepted);
    set.refuse('update', { code: 11_601, codeName: 'Interrupted' }, SUBMISSIONS);
    const unanswered = withDeadline(
      send(ingest.url, options),
      HANG_MS,
      'the end of the connection',
    );
    await expect(unanswered).rejects.toMatchObject({ code: 'ECONNRESET' });
    set.refuse('update');
    expectAnswer(await send(ingest.url, options), 202, bodies.accepted(requestIdOf(first)));
    // Nothing of it holds up the end of the process.
    expect(await ingest.stop()).toBe(0);
  } finally {
    await set.close();
  }
});

test('a malformed body is answered 400 and binds no key', async () => {
  const [key, body] = [newKey(), newBody()];
  const malformed = await post(0, key, '[]');
  expectAnswer(malformed, 400, bodies.notAnObject);
  const [record] = await recordsOf([malformed]);
  expect(record).not.toHaveProperty('idempotencyDigest');
  const accepted = await post(0, key, body);
  expectAnswer(accepted, 202, bodies.accepted);
  expectAnswer(await post(1, key, '[]'), 400, bodies.notAnObject);
});

test.each(['', '""', 'two words', `"${'k'.repeat(256)}"`])(
  'the key %j is answered 400 and recorded',
  async (key) => {
    const answer = await post(0, key, newBody());
    expectAnswer(answer, 400, bodies.idempotencyKeyInvalid);
    const [record] = await recordsOf([answer]);
    expect(record).toMatchObject({
      state: 'malformed',
      httpStatus: 400,
      partnerId: expect.any(String),
    });
  },
);

test('quoted or not, a key is the same', async () => {
  const body = newBody();
  const first = await post(0, '"same-key"', body);
  expect(requestIdOf(await post(1, 'same-key', body))).toBe(requestIdOf(first));
});

test('without the header nothing is bound', async () => {
  const body = newBody();
  const [one, other] = await Promise.all(
    [0, 1].map((n) => send(ingests[n]!.url, { key: world.key, body })),
  );
  expect(requestIdOf(one!)).not.toBe(requestIdOf(other!));
  expect(await recordsOf([one!, other!])).toEqual(
    [0, 1].map(() => expect.not.objectContaining({ idempotencyDigest: expect.anything() })),
  );
});
