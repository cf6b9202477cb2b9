/** Idempotency keys over two ingest processes: one record for each key, and equal answers. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { ServiceProcess } from '../../deploy/local/processes.ts';
import { withDeadline } from '../../internal/platform/process/deadline.ts';
import { SUBMISSIONS } from '../../internal/submission/submission.ts';
import { send, type Answer } from '../support/http.ts';
import { bodies, expectAnswer } from '../support/ingest.ts';
import { startReplicaSet } from '../support/replica-set/replica-set.ts';
import { HANG_MS, eventually } from '../support/wait.ts';
import { newApplication, requestIdOf, worldOf } from '../support/world.ts';

const PAIRS = 50;
const { world } = await worldOf([], { documentedRights: true });
const set = await startReplicaSet(world.stores.mongodbUri);
let ingests: readonly [ServiceProcess, ServiceProcess];
afterAll(() => set.close());

beforeAll(async () => {
  ingests = await Promise.all([world.spawn('ingest'), world.spawn('ingest')]);
});

const post = (ingest: number, key: string, body: string): Promise<Answer> =>
  send(ingests[ingest % 2]!.url, { key: world.key, body, headers: { 'idempotency-key': key } });
const newBody = (): string => JSON.stringify(newApplication());

let keys = 0;
const newKey = (): string => `"key-${(keys += 1)}"`;

/** Sends again after a 500, which a busy machine may give. */
async function heard(ingest: number, key: string, body: string): Promise<Answer> {
  for (let tries = 1; ; tries += 1) {
    const answer = await post(ingest, key, body);
    if (answer.status !== 500 || tries === 10) return answer;
  }
}

const live = (): Promise<unknown[]> => world.records({ state: { $ne: 'withdrawn' } });

const recordsOf = async (answers: readonly Answer[]) =>
  world.records({ _id: { $in: answers.map(requestIdOf) } });

test(`${PAIRS} concurrent pairs get one record for each key, and another body gets 422`, async () => {
  const before = (await live()).length;
  await Promise.all(
    Array.from({ length: PAIRS }, async (_, index) => {
      const equal = index % 2 === 0;
      const [key, one] = [newKey(), newBody()];
      const pair = [one, equal ? one : newBody()];
      const answers = await Promise.all(pair.map((body, ingest) => heard(ingest, key, body)));
      const replayed = answers.map(({ headers }) => headers['idempotent-replayed'] === 'true');
      const at = answers.findIndex(({ status }, number) => status === 202 && !replayed[number]);
      const [first, other] = [answers[at]!, answers[1 - at]!];
      const id = expectAnswer(first, 202, bodies.accepted);
      if (equal) expectAnswer(other, 202, bodies.accepted(id));
      else expectAnswer(other, 422, bodies.idempotencyMismatch(id));
      expect(replayed[1 - at]).toBe(equal);
      const [record] = await recordsOf([first]);
      expect(Buffer.from(record!.body!.value()).toString()).toBe(pair[at]);
    }),
  );
  await eventually('one record for each key', async () => (await live()).length - before === PAIRS);
});

test('a repeat whose adoption is in doubt gets a closed connection', async () => {
  const ingest = await world.spawn('ingest', { MONGODB_URI: (await set.door()).url });
  const options = { key: world.key, body: newBody(), headers: { 'idempotency-key': newKey() } };
  const first = await send(ingest.url, options);
  expectAnswer(first, 202, bodies.accepted);
  set.refuse('update', { code: 11_601, codeName: 'Interrupted' }, { only: SUBMISSIONS });
  const unanswered = withDeadline(send(ingest.url, options), HANG_MS, 'the end of the connection');
  await expect(unanswered).rejects.toMatchObject({ code: 'ECONNRESET' });
  set.refuse('update');
  expectAnswer(await send(ingest.url, options), 202, bodies.accepted(requestIdOf(first)));
  // The closed request does not delay the end of the process.
  expect(await ingest.stop()).toBe(0);
});

test('an insert that lost a deadlock is sent again, so that its request is accepted', async () => {
  const ingest = await world.spawn('ingest', { MONGODB_URI: (await set.door()).url });
  const [key, body] = [newKey(), newBody()];
  set.deadlock(SUBMISSIONS, 2);
  const options = { key: world.key, body, headers: { 'idempotency-key': key } };
  const first = await send(ingest.url, options);
  expectAnswer(first, 202, bodies.accepted);
  expect(await recordsOf([first])).toMatchObject([{ state: 'recorded' }]);
  // A database that never stores it is told of, and not asked without end.
  const inserts = set.commands.get('insert') ?? 0;
  set.deadlock(SUBMISSIONS, Infinity);
  expectAnswer(await send(ingest.url, { key: world.key, body }), 500, bodies.internal);
  expect((set.commands.get('insert') ?? 0) - inserts).toBe(4);
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
  // Without quotes it is the same key, and without the header the same body is another request.
  expect(requestIdOf(await post(1, key.slice(1, -1), body))).toBe(requestIdOf(accepted));
  const unbound = await send(ingests[0].url, { key: world.key, body });
  expect(requestIdOf(unbound)).not.toBe(requestIdOf(accepted));
});

test('a malformed key is answered 400 and recorded', async () => {
  const answer = await post(0, 'two words', newBody());
  expectAnswer(answer, 400, bodies.idempotencyKeyInvalid);
  expect(await recordsOf([answer])).toMatchObject([{ state: 'malformed', httpStatus: 400 }]);
});
