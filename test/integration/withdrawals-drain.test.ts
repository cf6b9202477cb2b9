/**
 * Withdrawals that are pending when SIGTERM comes: the drain waits for them, and tells which it
 * gave up.
 */
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { send } from '../support/http.ts';
import { bodies, expectAnswer } from '../support/ingest.ts';
import { startReplicaSet, type ReplicaSet } from '../support/replica-set/replica-set.ts';
import { eventually } from '../support/wait.ts';
import { openWorld, type World } from '../support/world.ts';

let world: World;
let set: ReplicaSet;
beforeAll(async () => {
  world = await openWorld();
});
afterAll(() => world.close());
beforeEach(async () => {
  set = await startReplicaSet(world.stores.mongodbUri);
});
afterEach(() => set.close());

/**
 * An ingest that is told to end while the withdrawal of one request, answered 500, waits for its
 * majority.
 */
async function drainWhileStalled() {
  const door = await set.door();
  const ingest = await world.spawn('ingest', { MONGODB_URI: door.url, ACCEPT_TIMEOUT_MS: '1000' });
  set.stallMajority();
  const answer = await send(ingest.url, { key: world.key, body: '{"a":1}' });
  const id = expectAnswer(answer, 500, bodies.internal);
  await world.recordIn('withdrawn', id);
  ingest.child.kill('SIGTERM');
  await eventually('the drain to begin', async () => {
    const response = await fetch(`${ingest.adminUrl}/readyz`);
    return (await response.text()).includes('draining');
  });
  return { ingest, id };
}

test('a drain waits until a majority has the withdrawals', async () => {
  const { ingest, id } = await drainWhileStalled();
  expect(await world.metric(ingest, 'partner_ingest_withdrawals_pending')).toBe(1);
  set.resumeMajority();
  expect(await ingest.exited).toEqual({ code: 0, signal: null });
  expect(ingest.lines.join('\n')).not.toContain('withdrawal abandoned');
  expect((await world.record(id))?.state).toBe('withdrawn');
});

test('a drain that cannot settle them ends, and logs each', async () => {
  const { ingest, id } = await drainWhileStalled();
  expect(await ingest.exited).toEqual({ code: 0, signal: null });
  const told = ingest.lines.filter((line) => line.includes('withdrawal abandoned'));
  expect(told).toEqual([expect.stringContaining(id)]);
});
