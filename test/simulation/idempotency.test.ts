/** Idempotency keys on the model: cases that random histories cannot judge. */
import { expect, test } from '@jest/globals';
import type { Collection } from 'mongodb';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { systemClock } from '../../internal/platform/process/clock.ts';
import { GroupCommit, groupCommitLimits } from '../../internal/submission/group-commit.ts';
import {
  newRecord,
  SUBMISSIONS,
  type SubmissionRecord,
} from '../../internal/submission/submission.ts';
import { HANG_MS } from '../support/wait.ts';
import { databaseOf, driverOf, type Wire } from './driver.ts';
import { MemoryCollection } from './memory-collection.ts';
import { noMetrics } from './world.ts';

const body = { bytes: Buffer.from('one body'), received: 8 };
const record = (requestId: string): SubmissionRecord => {
  const received = { receivedAt: new Date(), remoteIp: '127.0.0.1', partnerId: 'demo' };
  const result = { state: 'recorded', httpStatus: 202, body, idempotencyKey: 'key' } as const;
  return newRecord({ requestId, ...received }, result);
};

const commitsTo = (requests: Collection, passed = (): number => 0): GroupCommit =>
  new GroupCommit({
    db: databaseOf({ [SUBMISSIONS]: requests }),
    limits: groupCommitLimits,
    timeoutMs: HANG_MS,
    clock: { ...systemClock, monotonicMs: () => systemClock.monotonicMs() + passed() },
    metrics: noMetrics,
    pendingWithdrawals: () => 0,
  });

test('an erased submission is not replayed', async () => {
  const documents = new MemoryCollection(['idempotencyDigest']);
  const requests = driverOf(documents, (execute) => nextTurn().then(execute));
  const commits = commitsTo(requests as unknown as Collection);
  await commits.record(record('req_1'));
  const erased = { $set: { erasedAt: new Date() }, $unset: { body: true, bodySha256: true } };
  documents.update({ _id: 'req_1' }, erased);
  const result = await commits.record(record('req_2'));
  expect(result).toMatchObject({ kind: 'erased', first: { _id: 'req_1' } });
});

test('a repeat that is answered 500 adopts nothing later', async () => {
  const documents = new MemoryCollection(['idempotencyDigest']);
  // Its insert has landed, its answer was 500, and its withdrawal is under way.
  documents.insert({ ...record('req_1') });
  let passed = 0;
  const requests = driverOf(documents, async (execute) => {
    await nextTurn();
    passed = HANG_MS;
    return execute();
  });
  const commits = commitsTo(requests as unknown as Collection, () => passed);
  expect(await commits.record(record('req_2'))).toMatchObject({ kind: 'in_doubt' });
  await commits.whenIdle();
  expect(documents.get('req_1')).toMatchObject({ state: 'recorded' });
  expect(documents.get('req_1')).not.toHaveProperty('adopted');
  expect(documents.get('req_2')).toBeUndefined();
});

test('an adoption without an answer closes the connection in place of a 500', async () => {
  let [adoptions, passed] = [0, 0];
  let lose = (): void => {};
  const wire: Wire = async (execute) => {
    const before = adoptions;
    await nextTurn();
    const result = execute();
    if (adoptions === before) return result;
    // The answer of the adoption is late.
    passed = HANG_MS;
    return new Promise((_resolve, reject) => {
      lose = () => reject(new Error('connection closed'));
    });
  };
  const documents = new MemoryCollection(['idempotencyDigest']);
  documents.onWrite = ({ adopted }) => void (adoptions += Number(adopted === true));
  const requests = driverOf(documents, wire);
  const commits = commitsTo(requests as unknown as Collection, () => passed);
  await commits.record(record('req_1'));
  expect(await commits.record(record('req_2'))).toMatchObject({ kind: 'unknown' });
  expect(adoptions).toBe(1);
  lose();
  await commits.whenIdle();
});
