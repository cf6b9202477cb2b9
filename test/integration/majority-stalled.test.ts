/** A replica set that applies writes without a majority, under load. */
/* oxlint-disable node/no-process-env -- LONG is a choice of the person who runs the tests */
import { Agent } from 'node:http';
import { afterAll, expect, test } from '@jest/globals';
import { pause } from '../../internal/platform/process/deadline.ts';
import { isOpen } from '../../internal/submission/states.ts';
import { send } from '../support/http.ts';
import { idOf } from '../support/ingest.ts';
import { startReplicaSet } from '../support/replica-set/replica-set.ts';
import { eventually, HEAL_HANG_MS } from '../support/wait.ts';
import { newApplication, worldOf } from '../support/world.ts';

const long = (process.env['LONG'] ?? '') !== '';
/**
 * The long stall outlasts the 30 s after which reconcile finds records. In the short one only hints
 * bring work.
 */
const STALL_SECONDS = long ? 60 : 8;
const PER_SECOND = long ? 1_000 : 50;
const TICKS_PER_SECOND = 10;

/** Connections of one address are bounded, but not those of a trusted proxy. */
const behindProxy = { TRUSTED_PROXIES: '127.0.0.0/8' };

const { world } = await worldOf();
const set = await startReplicaSet(world.stores.mongodbUri);
afterAll(() => set.close());

/** Sends applications for `seconds`; resolves with all answers. */
async function load(url: string, seconds: number): Promise<Map<string, number>> {
  const agent = new Agent({ keepAlive: true });
  const sent: Promise<readonly [string, number]>[] = [];
  const sendOne = async (): Promise<readonly [string, number]> => {
    const answer = await send(url, {
      key: world.key,
      body: JSON.stringify(newApplication()),
      agent,
    });
    return [idOf(answer), answer.status];
  };
  for (let tick = 0; tick < seconds * TICKS_PER_SECOND; tick += 1) {
    for (let count = 0; count < PER_SECOND / TICKS_PER_SECOND; count += 1) sent.push(sendOne());
    await pause(1_000 / TICKS_PER_SECOND);
  }
  const answers = new Map(await Promise.all(sent));
  agent.destroy();
  return answers;
}

test(`in a stall of ${STALL_SECONDS} s at ${PER_SECOND} requests a second no request answered 500 is processed`, async () => {
  const start = async (name: 'ingest' | 'processor') =>
    world.spawn(name, {
      MONGODB_URI: (await set.door()).url,
      ACCEPT_TIMEOUT_MS: '2000',
      ...behindProxy,
    });
  const ingest = await start('ingest');
  const processor = await start('processor');
  const said = (text: string) => (): boolean => processor.lines.some((line) => line.includes(text));
  set.stallMajority();
  // Another ingest records requests, so that the workers have something to write.
  const beside = await world.start('ingest');
  const body = JSON.stringify(newApplication());
  expect((await send(beside.url, { key: world.key, body })).status).toBe(202);
  const answers = await load(ingest.url, STALL_SECONDS);
  await eventually('the workers to pause', said('work paused'), HEAL_HANG_MS);
  expect(said('work resumed')()).toBe(false);
  set.resumeMajority();
  await eventually('the workers to resume', said('work resumed'), HEAL_HANG_MS);
  const answered = (status: number): string[] =>
    [...answers].flatMap(([id, got]) => (got === status ? [id] : []));
  // Only the requests of the stall count, because a claim of others may still expire.
  const stored = async () => (await world.records()).filter(({ _id }) => answers.has(_id));
  await eventually(
    'all that is stored to be final',
    async () =>
      (await world.metric(ingest, 'partner_ingest_withdrawals_pending')) === 0 &&
      (await stored()).every(({ state }) => !isOpen(state)),
    HEAL_HANG_MS,
  );
  const records = new Map((await stored()).map((record) => [record._id, record]));
  const refused = answered(500);
  const processed = refused.filter(
    (id) => !['withdrawn', undefined].includes(records.get(id)?.state),
  );
  console.log(
    `${refused.length} × 500, ${answers.size - refused.length} × 202, ${processed.length} of the 500 processed`,
  );
  expect(refused.length).toBeGreaterThan(0);
  expect(processed).toEqual([]);
  expect(answered(202).filter((id) => records.get(id)?.state !== 'completed')).toEqual([]);
  expect(answered(202).length + refused.length).toBe(answers.size);
}, 600_000);
