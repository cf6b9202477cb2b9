/** A new listener to the ends of requests needs one row of one list, and no other file. */
import { expect, test } from '@jest/globals';
import { later, systemClock as clock } from '../../internal/platform/process/clock.ts';
import { endListeners, type RequestEnd } from '../../internal/submission/move-of.ts';
import { OperatorMoves } from '../../internal/submission/operator-moves.ts';
import { cards, moves, type State } from '../../internal/submission/states.ts';
import { SUBMISSIONS } from '../../internal/submission/submission.ts';
import { newRecord, retention } from '../support/records.ts';
import { databaseOf, driverOf } from './driver.ts';
import { play } from './history.ts';
import { MemoryCollection } from './memory-collection.ts';
import { orderEvents, type Plan } from './plan.ts';
import type { World } from './world.ts';

const HISTORIES = 45;
const ANSWERED_MS = 1_000;
const ends = (state: State): boolean => cards[state].status !== 'processing';

const heard: RequestEnd[] = [];
endListeners.push((end) => heard.push(end));
const told = (): string[] =>
  heard
    .splice(0)
    .map(({ requestId, to }) => `${requestId} ${to}`)
    .toSorted();

/** The first request is answered 500; each order meets each of the others in some history. */
const planOf = (seed: number): Plan => ({
  seed,
  submissions: [0, 1, 2, 0, 3].map((person, index) => ({
    atMs: index * 30_000,
    email: person,
    ein: person,
    valid: index !== 4,
    key: null,
  })),
  tempers: ['takes', 'no_such_mailbox', 'busy'],
  faults: [{ kind: 'mongo_stalled', atMs: 0, forMs: 20_000, near: null, target: 0 }],
  // The first order meets a request whose e-mail is to be tried again.
  orders: [61_000, 130_000, 140_000, 150_000].map((atMs, count) => ({
    atMs,
    submission: count === 0 ? 2 : 1 + ((seed + count) % 4),
    event: orderEvents[(seed + 4 * count) % orderEvents.length]!,
  })),
  skewsMs: [],
  leap: undefined,
});

test('it is called once for each move that ends a request, and for nothing else', async () => {
  const events = new Set<string>();
  for (let seed = 0; seed < HISTORIES; seed += 1) {
    let moved: string[] = [];
    const look = async (world: World): Promise<void> => {
      // Answers of the database are on the way.
      await world.scheduler.run(world.scheduler.now + ANSWERED_MS, () => false);
      moved = world.records().flatMap(({ _id, history: [first, ...others] }) =>
        // What an answer to the partner ended was never moved.
        [...(first?.state === 'withdrawn' ? [first] : []), ...others]
          .filter(({ state }) => ends(state))
          .map(({ state }) => `${_id} ${state}`),
      );
    };
    await play(planOf(seed), { look });
    for (const { event } of heard) events.add(event);
    expect(told()).toEqual(moved.toSorted());
  }
  const possible = moves.filter(({ to, stays }) => !stays && ends(to)).map(({ event }) => event);
  expect(events).toEqual(new Set(possible));
});

test('of a group it hears of those that were moved', async () => {
  const dueAt = later(clock.now(), 3_600_000);
  const all = [1, 1, 2].map((version) => newRecord({ version, dueAt }));
  const collection = new MemoryCollection();
  for (const record of all) collection.insert({ ...record });
  const db = databaseOf({ [SUBMISSIONS]: driverOf(collection, async (execute) => execute()) });
  const items = all.map((seen) => ({ seen: { ...seen, version: 1 }, to: 'closed' }) as const);
  const operator = new OperatorMoves({ db, retention, clock });
  expect(await operator.moveAll('close', items, 'asked')).toBe(2);
  expect(told()).toEqual(all.slice(0, 2).map(({ _id }) => `${_id} closed`));
});
