/** A new listener to the ends of requests needs one row of one list, and no other file. */
import { expect, test } from '@jest/globals';
import { lateBounce } from '../../internal/application/sandbox-endings.ts';
import { later, systemClock as clock } from '../../internal/platform/process/clock.ts';
import { createLogger } from '../../internal/platform/process/log.ts';
import { BACKED_OFF_AT_MOST_MS } from '../../internal/processor/step.ts';
import { OperatorMoves, reportLateBounces } from '../../internal/submission/operator-moves.ts';
import { endListeners, type RequestEnd } from '../../internal/submission/move-of.ts';
import { cards, moves, type State } from '../../internal/submission/states.ts';
import { Withdrawals } from '../../internal/submission/withdrawals.ts';
import { WorkerMoves } from '../../internal/submission/worker-moves.ts';
import { operatorWorld } from '../support/cli.ts';
import { send } from '../support/http.ts';
import { submit } from '../support/processing.ts';
import { newRecord, retention } from '../support/records.ts';
import { eventually } from '../support/wait.ts';
import { newApplication } from '../support/world.ts';

const heard: RequestEnd[] = [];
endListeners.push((end) => heard.push(end));

const { world, ingest, completed, done } = await operatorWorld();
const { db, requests } = world.stores;
const tools = { db, retention, clock };
const busy = { at: 'rcpt', answer: { code: 450, message: '4.2.1 try later' } } as const;
const unknownUser = { at: 'rcpt', answer: { code: 550, message: '5.1.1 unknown user' } } as const;

const ends = (state: State): boolean => cards[state].status !== 'processing';

/** An open request whose first attempt at the e-mail failed. */
async function failing(): Promise<string> {
  world.mail.setFault(busy);
  const id = await submit(world, ingest, newApplication());
  await eventually('a failed attempt', async () => (await world.record(id))?.lastError);
  world.mail.setFault(undefined);
  return id;
}

async function undeliverable(): Promise<string> {
  world.mail.setFault(unknownUser);
  const id = await submit(world, ingest, newApplication());
  await world.recordIn('undeliverable', id);
  world.mail.setFault(undefined);
  return id;
}

test('processors: completed, rejected, undeliverable, given up', async () => {
  await completed();
  await world.recordIn('rejected', await submit(world, ingest, {}));
  await undeliverable();
  const id = await failing();
  await requests.updateOne({ _id: id }, { $set: { backedOffMs: BACKED_OFF_AT_MOST_MS } });
  world.mail.setFault(busy);
  await done('retry', id);
  await world.recordIn('dead_lettered', id);
  world.mail.setFault(undefined);
  const stale = { _id: id, state: 'recorded', version: 0 } as const;
  expect(await new WorkerMoves(tools).move(stale, 'reject', 1)).toBe(false);
});

test('ingest: answered with an error, or withdrawn', async () => {
  await send(ingest.url, { key: world.key, body: 'no JSON' });
  await send(ingest.url, { key: world.inactiveKey, body: '{}' });
  const withdrawals = new Withdrawals({
    db,
    clock,
    retentionDays: 7,
    log: createLogger('test', 'silent'),
    metrics: { withdrawals: { inc: () => {} }, withdrawalsPending: { set: () => {} } },
  });
  const [landed, claimed, neverLanded] = [newRecord(), newRecord({ version: 1 }), newRecord()];
  await requests.insertMany([landed, claimed]);
  for (const record of [landed, claimed, neverLanded]) withdrawals.add(record);
  await withdrawals.whenSettled();
});

test('operators: closed, bounced and erased; what is worked on again ends again', async () => {
  const bounced = await completed();
  await done('bounce', '--request', bounced.id);
  await done('retry', bounced.id);
  await world.recordIn('completed', bounced.id);
  await done('resend', bounced.id, '--yes');
  await eventually('a third e-mail', () => bounced.mails().length === 3);
  await world.recordIn('completed', bounced.id);
  const closed = await failing();
  await done('close', closed, '--yes', '--why', 'x');
  await done('reopen', closed, '--yes', '--why', 'x');
  await world.recordIn('completed', closed);
  await done('erase', await failing(), '--yes');
  await done('erase', (await completed()).id, '--yes');
});

test('a group: only those that were moved', async () => {
  const far = later(clock.now(), 3_600_000);
  const all = [1, 1, 2].map((version) => newRecord({ version, dueAt: far }));
  await requests.insertMany(all);
  const items = all.map((seen) => ({ seen: { ...seen, version: 1 }, to: 'closed' }) as const);
  expect(await new OperatorMoves(tools).moveAll('close', items, 'asked')).toBe(2);
});

test('a late bounce', async () => {
  const stateAt = later(clock.now(), -3_600_000);
  await requests.insertOne({
    ...newRecord({ state: 'completed', stateAt, test: true, accountId: 'acc_1' }),
    applicant: { ein: lateBounce.ein },
  });
  await reportLateBounces(tools);
});

test('it was called once for each move that ended a request, and for nothing else', async () => {
  const moved = (await world.records()).flatMap(({ _id, history: [first, ...history] }) =>
    // What an answer to the partner ended was never moved.
    [...(first?.state === 'withdrawn' ? [first] : []), ...history]
      .filter(({ state }) => ends(state))
      .map(({ state }) => `${_id} ${state}`),
  );
  await eventually('all calls', () => heard.length >= moved.length);
  expect(heard.map(({ requestId, to }) => `${requestId} ${to}`).toSorted()).toEqual(
    moved.toSorted(),
  );
  const possible = moves.filter(({ to, stays }) => !stays && ends(to)).map(({ event }) => event);
  expect(new Set(heard.map(({ event }) => event))).toEqual(new Set(possible));
});
