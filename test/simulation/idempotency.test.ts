/** Idempotency keys, step by step: group commit and withdrawals on the model of the database. */
import { expect, test } from '@jest/globals';
import { Binary } from 'mongodb';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { systemClock, type Clock } from '../../internal/platform/clock.ts';
import { GroupCommit } from '../../internal/submission/group-commit.ts';
import { groupCommitLimits } from '../../internal/submission/limits.ts';
import { acceptedRecord } from '../../internal/submission/new-record.ts';
import { SUBMISSIONS, type SubmissionRecord } from '../../internal/submission/submission.ts';
import { Withdrawals } from '../../internal/submission/withdrawals.ts';
import { HANG_MS } from '../support/wait.ts';
import { databaseOf, driverOf, type Tamper, type Wire } from './driver.ts';
import { MemoryCollection } from './memory-collection.ts';
import { noMetrics, silent } from './world.ts';

const KEY = '8e03978e-40d5-43dd-bc93-6894a57f9324';

let made = 0;
/** A new request with this body and key, which nobody has sent yet. */
function newRecord(body = 'one body', { key = KEY, partnerId = 'demo' } = {}): SubmissionRecord {
  made += 1;
  const received = {
    requestId: `req_${made}`,
    receivedAt: new Date(),
    remoteIp: '127.0.0.1',
    partnerId,
  };
  return acceptedRecord(received, { bytes: Buffer.from(body), received: body.length }, key);
}

const straight: Wire = <T>(execute: () => T): Promise<T> => nextTurn().then(execute);

const isAdoption: (sent: Parameters<Tamper>[0]) => boolean = ({ update }) =>
  Object.hasOwn(update['$set'] ?? {}, 'adopted');

/** Ingest's way to a database of its own. */
function open({
  wire = straight,
  tamper,
  clock = systemClock,
}: { wire?: Wire; tamper?: Tamper; clock?: Clock } = {}) {
  const documents = new MemoryCollection(['idempotencyDigest']);
  const db = databaseOf({
    [SUBMISSIONS]: driverOf(documents, wire, tamper === undefined ? {} : { tamper }),
  });
  const settled: string[] = [];
  const withdrawals = new Withdrawals({
    db,
    retentionDays: 7,
    clock: systemClock,
    log: silent,
    metrics: {
      withdrawalsPending: { set: () => {} },
      withdrawals: { inc: ({ result }) => settled.push(result) },
    },
  });
  const commits = new GroupCommit({
    db,
    limits: groupCommitLimits,
    timeoutMs: HANG_MS,
    clock,
    metrics: noMetrics as never,
    pendingWithdrawals: () => withdrawals.pending,
  });
  const withdraw = async (record: SubmissionRecord): Promise<string[]> => {
    withdrawals.add(record);
    await withdrawals.whenSettled();
    return settled;
  };
  const get = (record: SubmissionRecord) =>
    documents.get(record._id) as unknown as SubmissionRecord | undefined;
  return { documents, commits, withdraw, get };
}

test('the same key and body get the first record, which stays alone', async () => {
  const { commits, documents, get } = open();
  const [first, second] = [newRecord(), newRecord()];
  expect(await commits.record(first)).toEqual({ kind: 'stored' });
  expect(await commits.record(second)).toMatchObject({
    kind: 'replayed',
    first: { _id: first._id, version: 0 },
  });
  expect(documents.all()).toHaveLength(1);
  expect(get(first)).toMatchObject({ state: 'recorded', adopted: true });
});

test('requests of one batch with the same key are one', async () => {
  const { commits, documents } = open();
  const results = await Promise.all(Array.from({ length: 10 }, () => commits.record(newRecord())));
  expect(results.filter((result) => result.kind === 'stored')).toHaveLength(1);
  const [{ _id }] = documents.all() as [{ _id: string }];
  expect(results.filter((result) => result.kind !== 'stored')).toEqual(
    Array.from({ length: 9 }, () =>
      expect.objectContaining({ kind: 'replayed', first: expect.objectContaining({ _id }) }),
    ),
  );
});

test('the same key with another body is told of the first and leaves it as it is', async () => {
  const { commits, documents, get } = open();
  const first = newRecord();
  await commits.record(first);
  expect(await commits.record(newRecord('another body'))).toMatchObject({
    kind: 'mismatched',
    first: { _id: first._id },
  });
  expect(documents.all()).toHaveLength(1);
  expect(get(first)?.adopted).toBeUndefined();
});

test("another partner's key is another key", async () => {
  const { commits } = open();
  expect(await commits.record(newRecord())).toEqual({ kind: 'stored' });
  expect(await commits.record(newRecord('one body', { partnerId: 'acme' }))).toEqual({
    kind: 'stored',
  });
  expect(
    await commits.record(
      newRecord('one body', { partnerId: `demo${KEY.charAt(0)}`, key: KEY.slice(1) }),
    ),
  ).toEqual({ kind: 'stored' });
});

test('what is erased is not replayed', async () => {
  const { commits, documents } = open();
  const first = newRecord();
  await commits.record(first);
  documents.update(
    { _id: first._id },
    { $set: { erasedAt: new Date() }, $unset: { body: true, bodySha256: true } },
  );
  expect(await commits.record(newRecord())).toMatchObject({
    kind: 'erased',
    first: { _id: first._id },
  });
});

test('the withdrawal of an adopted record leaves it, and is settled', async () => {
  const { commits, withdraw, get } = open();
  const first = newRecord();
  await commits.record(first);
  expect(await commits.record(newRecord())).toMatchObject({ kind: 'replayed' });
  expect(await withdraw(first)).toEqual(['adopted']);
  expect(get(first)?.state).toBe('recorded');
});

test('a withdrawal frees the key, for another body too', async () => {
  const { commits, withdraw, get } = open();
  const first = newRecord();
  await commits.record(first);
  expect(await withdraw(first)).toEqual(['withdrawn']);
  expect(get(first)?.idempotencyDigest).toBeUndefined();
  expect(await commits.record(newRecord('another body'))).toEqual({ kind: 'stored' });
});

test('a first record that is withdrawn just before its adoption: the second is stored', async () => {
  const first = newRecord();
  const { commits, documents, get } = open({
    tamper: (sent) => {
      if (isAdoption(sent)) {
        documents.update(
          { _id: first._id },
          { $set: { state: 'withdrawn' }, $unset: { idempotencyDigest: true } },
        );
      }
      return sent;
    },
  });
  await commits.record(first);
  const second = newRecord();
  expect(await commits.record(second)).toEqual({ kind: 'stored' });
  expect(get(second)?.idempotencyDigest).toBe(first.idempotencyDigest);
});

test('an adoption without an answer leaves it unknown, and what is late does not answer 500', async () => {
  let adoptions = 0;
  let lose: (() => void) | undefined;
  let passed = 0;
  const { commits } = open({
    clock: { ...systemClock, monotonicMs: () => systemClock.monotonicMs() + passed },
    tamper: (sent) => {
      if (isAdoption(sent)) adoptions += 1;
      return sent;
    },
    wire: <T>(execute: () => T) =>
      new Promise<T>((resolve, reject) => {
        const before = adoptions;
        void nextTurn().then(() => {
          let result: T;
          try {
            result = execute();
          } catch (error) {
            reject(error);
            return;
          }
          if (adoptions === before) {
            resolve(result);
            return;
          }
          // The answer of an adoption does not come in time.
          passed = HANG_MS;
          lose = () => reject(new Error('connection closed'));
        });
      }),
  });
  await commits.record(newRecord());
  expect(await commits.record(newRecord())).toMatchObject({ kind: 'unknown' });
  expect(adoptions).toBe(1);
  lose?.();
  await commits.whenIdle();
});

test('what is stored of a key is neither the key nor a plain digest of it', async () => {
  const { idempotencyDigest = '' } = newRecord();
  expect(idempotencyDigest).toMatch(/^[0-9a-f]{64}$/);
  expect(JSON.stringify({ ...newRecord(), body: new Binary() })).not.toContain(KEY);
});
