/** Each loop reports a missing database right. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { ServiceName } from '../../deploy/local/processes.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { send } from '../support/http.ts';
import { startReplicaSet, type ReplicaSet } from '../support/replica-set/replica-set.ts';
import { HEAL_HANG_MS, eventually } from '../support/wait.ts';
import { openWorld, type World } from '../support/world.ts';

/** The removed right of each process, and the loops that need it. */
const rights: Readonly<
  Record<Exclude<ServiceName, 'console'>, Readonly<Record<string, readonly string[]>>>
> = {
  ingest: { find: ['keys'], update: ['key_uses', 'over_limit'] },
  processor: { find: ['holds', 'reconcile'] },
  controller: { aggregate: ['backlog'] },
};

let world: World;
const sets: ReplicaSet[] = [];

beforeAll(async () => {
  world = await openWorld({ controller: false });
});
afterAll(async () => {
  await world.close();
  for (const set of sets) await set.close();
});

async function play(name: keyof typeof rights): Promise<void> {
  const set = await startReplicaSet(world.stores.mongodbUri);
  sets.push(set);
  const process = await world.start(name, {
    MONGODB_URI: (await set.door()).url,
    RATE_LIMIT_MAX: '1',
  });
  const work = async (): Promise<void> => {
    if (name !== 'ingest') return;
    for (const key of [world.key, newApiKey()]) await send(process.url, { key, body: '{}' });
  };
  const fails = async (loops: readonly string[]): Promise<boolean> => {
    await work();
    const text = await (await fetch(`${process.adminUrl}/readyz`)).text();
    const told = /failing loops: ([^:]*): MongoDB at .*: we lack a right \(13\)/.exec(text)?.[1];
    const values = loops.map((loop) =>
      world.metric(process, 'partner_ingest_loop_failing', { loop }),
    );
    return (await Promise.all(values)).every(
      (value, index) => value === 1 && told?.split(', ').includes(loops[index]!),
    );
  };
  const loops = Object.values(rights[name]).flat();
  for (const command of Object.keys(rights[name]))
    set.refuse(command, { code: 13, codeName: 'Unauthorized' });
  await eventually('all to fail', () => fails(loops), HEAL_HANG_MS);
  for (const command of Object.keys(rights[name])) set.refuse(command);
  await eventually(
    'all to succeed again',
    async () => (await world.metric(process, 'partner_ingest_loop_failing')) === 0,
    HEAL_HANG_MS,
  );
  const text = await (await fetch(`${process.adminUrl}/readyz`)).text();
  expect(text).not.toContain('failing loops');
}

test('a loop without its database right shows in /readyz and its gauge until it is granted', async () => {
  await Promise.all((['controller', 'ingest', 'processor'] as const).map(play));
});
