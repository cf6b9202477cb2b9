/** Whether an ingest is live that alone cannot commit: its door to the replica set is cut off, another one's is not. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { MongoClient } from 'mongodb';
import { CommitWatch } from '../../internal/ingest/commit-watch.ts';
import { ALONE_AFTER_MS, COMMIT_MARK_MS, OUTAGE_LINES_EVERY_MS } from '../../internal/ingest/limits.ts';
import { systemClock } from '../../internal/platform/clock.ts';
import { createMongo } from '../../internal/platform/mongo.ts';
import { commitClient } from '../../internal/submission/clients.ts';
import type { CommitResult } from '../../internal/submission/commit-entry.ts';
import { GroupCommit } from '../../internal/submission/group-commit.ts';
import { groupCommitLimits } from '../../internal/submission/limits.ts';
import { newTestClock } from '../support/processor-records.ts';
import { newRecord } from '../support/records.ts';
import { startReplicaSet, type Door, type ReplicaSet } from '../support/replica-set/replica-set.ts';
import { openTestStores, type TestStores } from '../support/test-stores.ts';
import { eventually } from '../support/wait.ts';

/** What the cut-off ingest waits for each of its answers. */
const TIMEOUT_MS = 1_000;
const PATIENT_MS = 10_000;

const clock = newTestClock();
let stores: TestStores;
let set: ReplicaSet;
let door: Door;
const clients: MongoClient[] = [];

beforeAll(async () => {
  stores = await openTestStores();
  set = await startReplicaSet(stores.mongodbUri);
  door = await set.door();
});
afterAll(async () => {
  await Promise.all(clients.map((client) => client.close()));
  await set.close();
  await stores.close();
});

/** A watch, and its lines in the log. */
function newWatch(): { readonly watch: CommitWatch; readonly lines: string[] } {
  const lines: string[] = [];
  const say = (level: string) => (fields: object, text?: string) =>
    void lines.push(`${level} ${text} ${JSON.stringify(fields)}`);
  const log = { warn: say('warn'), info: say('info') };
  return { watch: new CommitWatch({ redis: stores.redis, clock, log }), lines };
}

function ingestBehind(url: string, timeoutMs: number): { watch: CommitWatch; commit(): Promise<CommitResult> } {
  const client = createMongo(url, 'commit watch test', commitClient(timeoutMs));
  clients.push(client);
  const none = (): void => undefined;
  const commits = new GroupCommit({
    pendingWithdrawals: () => 0,
    db: client.db(stores.database),
    limits: groupCommitLimits,
    timeoutMs,
    clock: systemClock,
    metrics: {
      batchDocuments: { observe: none },
      commitSeconds: { observe: none },
      waitingDocuments: { set: none },
      notAccepted: { inc: none },
      refusedDropped: { inc: none },
    },
  });
  const { watch } = newWatch();
  return { watch, commit: () => watch.see(commits.record(newRecord())) };
}

test('an ingest that alone cannot commit for a minute is not live; one that nobody outdoes is', async () => {
  const [alone, other] = [ingestBehind(door.url, TIMEOUT_MS), ingestBehind((await set.door()).url, PATIENT_MS)];
  await eventually('a first commit', async () => (await alone.commit()) === 'stored');
  door.part();
  expect(await alone.commit()).not.toBe('stored');
  // Its own mark is gone after a minute, and it is the only one so far.
  await stores.redis.flushdb();
  clock.advance(ALONE_AFTER_MS);
  expect(await alone.commit()).not.toBe('stored');
  expect(await alone.watch.faults()).toEqual([]);

  expect(await other.commit()).toBe('stored');
  expect(await alone.watch.faults()).toEqual(['no commit succeeds here, while those of other processes do']);
  expect(await other.watch.faults()).toEqual([]);
  expect(await stores.redis.pttl('partner-ingest:committed')).toBeGreaterThan(0);

  // To whom nobody sends any more, nothing fails.
  clock.advance(COMMIT_MARK_MS + 1);
  expect(await alone.watch.faults()).toEqual([]);
  expect(await alone.commit()).not.toBe('stored');
  expect(await alone.watch.faults()).not.toEqual([]);
  door.join();
  await eventually('a commit', async () => (await alone.commit()) === 'stored');
  expect(await alone.watch.faults()).toEqual([]);
});

test('an outage is logged once when it begins and once when it ends, and one that comes and goes at most every ten seconds', async () => {
  const { watch, lines } = newWatch();
  const see = async (...results: CommitResult[]): Promise<void> => {
    for (const result of results) await watch.see(Promise.resolve(result));
  };
  const away = (result: string): string =>
    `warn mongodb is away, slow or refuses: requests are not recorded {"result":"${result}"}`;
  const back = (seconds: number): string => `info mongodb is back: requests are recorded again {"seconds":${seconds}}`;
  await see('stored', 'not_stored', 'in_doubt', 'unknown');
  clock.advance(OUTAGE_LINES_EVERY_MS);
  await see('not_stored', 'stored', 'stored');
  expect(lines).toEqual([away('not_stored'), back(10)]);

  await see('in_doubt', 'stored', 'in_doubt', 'stored', 'in_doubt');
  expect(lines.slice(2)).toEqual([away('in_doubt'), back(0)]);
  clock.advance(OUTAGE_LINES_EVERY_MS);
  await see('not_stored');
  expect(lines.slice(4)).toEqual([away('not_stored')]);
});
