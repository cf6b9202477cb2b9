/** A missing role parks the record without a counted attempt. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { ACCOUNTS } from '../../internal/account/account.ts';
import { startReplicaSet, type ReplicaSet } from '../support/replica-set/replica-set.ts';
import { submit } from '../support/processing.ts';
import { eventually } from '../support/wait.ts';
import { newApplication, worldOf, type InProcess } from '../support/world.ts';
import { BACK_OFFS } from '../../internal/processor/step.ts';

const { world } = await worldOf();
let set: ReplicaSet;
let [ingest, processor]: InProcess[] = [];

beforeAll(async () => {
  set = await startReplicaSet(world.stores.mongodbUri);
  const environment = { MONGODB_URI: (await set.door()).url };
  ingest = await world.start('ingest', environment);
  processor = await world.start('processor', environment);
});
afterAll(() => set.close());

test('without the right to write accounts no attempt is counted, and an error is logged', async () => {
  set.refuse('insert', { code: 13, codeName: 'Unauthorized' }, ACCOUNTS);
  const id = await submit(world, ingest!, newApplication());
  const ours = (): Promise<number> =>
    world.metric(processor!, 'partner_ingest_failures_total', { class: 'ours' });
  await eventually('the failure', async () => (await ours()) === 1);
  const record = await eventually('the record to be parked', async () => {
    const found = await world.record(id);
    return found?.lastError === undefined ? undefined : found;
  });
  expect(record).toMatchObject({
    state: 'recorded',
    attempts: 0,
    lastError: expect.stringContaining('Mongo'),
  });
  expect(record.dueAt!.getTime()).toBeGreaterThan(
    record.stateAt.getTime() + BACK_OFFS.ours.firstMs / 2,
  );

  // A refused claim is reported, because nothing else shows the missing right.
  set.refuse('insert');
  set.refuse('update', { code: 13, codeName: 'Unauthorized' });
  await submit(world, ingest!, newApplication());
  await eventually('another failure', async () => (await ours()) > 1);
  set.refuse('update');
});
