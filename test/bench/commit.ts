/** `node test/bench/commit.ts`: group commit alone, without HTTP, at several batch and in-flight settings (decision 17). */
import type { MongoClient } from 'mongodb';
import { startMongo } from '../../deploy/local/stores.ts';
import { systemClock } from '../../internal/platform/clock.ts';
import { createMongo } from '../../internal/platform/mongo.ts';
import { ensureIndexes } from '../../internal/platform/mongo-indexes.ts';
import { paint, table } from '../../internal/platform/terminal.ts';
import { GroupCommit } from '../../internal/submission/group-commit.ts';
import { submissionIndexes } from '../../internal/submission/indexes.ts';
import { groupCommitLimits } from '../../internal/submission/limits.ts';
import { newRecord } from '../support/records.ts';

const IN_FLIGHT = [1, 2, 3, 4];
const BATCH = [32, 128, 256, 512];
const CALLERS = [64, 256, 1_000];
const ROUNDS = 3;
const SECONDS = 2;
const TIMEOUT_MS = 10_000;
const BODY = '{"email":"load@example.com","business_name":"Load Test Ltd","ein":"123456789"}';

interface Setting {
  readonly maxInFlight: number;
  readonly maxBatchDocuments: number;
}

async function recordsPerSecond(setting: Setting, callers: number, client: MongoClient): Promise<number> {
  const nothing = { observe: () => {}, set: () => {}, inc: () => {} };
  const commits = new GroupCommit({
    pendingWithdrawals: () => 0,
    db: client.db('bench'),
    limits: { ...groupCommitLimits, ...setting },
    timeoutMs: TIMEOUT_MS,
    clock: systemClock,
    metrics: {
      batchDocuments: nothing,
      commitSeconds: nothing,
      waitingDocuments: nothing,
      notAccepted: nothing,
      refusedDropped: nothing,
    },
  });
  const end = performance.now() + SECONDS * 1_000;
  let stored = 0;
  const caller = async (): Promise<void> => {
    while (performance.now() < end) if ((await commits.record(newRecord({}, BODY))) === 'stored') stored += 1;
  };
  await Promise.all(Array.from({ length: callers }, caller));
  return stored / SECONDS;
}

const mongo = await startMongo({ log: (line) => console.error(paint('dim', line)) });
const client = createMongo(mongo.url, 'bench', { maxPoolSize: Math.max(...IN_FLIGHT) + 1 });
try {
  await ensureIndexes(client.db('bench'), submissionIndexes);
  const settings = [
    ...IN_FLIGHT.map((maxInFlight) => ({ maxInFlight, maxBatchDocuments: groupCommitLimits.maxBatchDocuments })),
    ...BATCH.map((maxBatchDocuments) => ({ maxInFlight: groupCommitLimits.maxInFlight, maxBatchDocuments })),
  ];
  const results = new Map<string, number[]>();
  for (let round = 0; round < ROUNDS; round += 1) {
    for (const setting of settings) {
      for (const callers of CALLERS) {
        const key = JSON.stringify([setting, callers]);
        results.set(key, [...(results.get(key) ?? []), await recordsPerSecond(setting, callers, client)]);
      }
    }
  }
  const median = (values: readonly number[] = []): number =>
    values.toSorted((one, other) => one - other)[Math.floor(values.length / 2)] ?? Number.NaN;
  const rows = settings.map((setting) => [
    String(setting.maxInFlight),
    String(setting.maxBatchDocuments),
    ...CALLERS.map((callers) => `${Math.round(median(results.get(JSON.stringify([setting, callers]))))}/s`),
  ]);
  console.log(table([['in flight', 'batch at most', ...CALLERS.map((callers) => `${callers} at once`)], ...rows]));
} finally {
  await client.close();
  await mongo.stop();
}
