/** What a round of reconcile costs with 0 and ever more due records: `node test/bench/reconcile.ts 200000 1000000`. */
import { Binary } from 'mongodb';
import { startMongo } from '../../deploy/local/stores.ts';
import { systemClock as clock } from '../../internal/platform/clock.ts';
import { createMongo } from '../../internal/platform/mongo.ts';
import { ensureIndexes } from '../../internal/platform/mongo-indexes.ts';
import { RECONCILE_PAGE, REQUEUED_AGAIN_MS } from '../../internal/processor/limits.ts';
import { submissionIndexes } from '../../internal/submission/indexes.ts';
import { SUBMISSIONS, type SubmissionRecord } from '../../internal/submission/submission.ts';
import { WorkerMoves } from '../../internal/submission/worker-moves.ts';
import { newRecord } from '../support/records.ts';

const BODY = new Binary(Buffer.alloc(1_000, 'x'));
const TOGETHER = 2_000;
const AT_ONCE = 2;
/** Due records are that dense: as many partners' requests a second came in during the outage. */
const PER_SECOND = 1_000;
const ROUNDS = 9;

const store = await startMongo({ log: () => {} });
// `explain` needs no such long answer, but filling does.
const client = createMongo(store.url, 'bench reconcile', { socketTimeoutMS: 120_000 });
const db = client.db('bench');
const requests = db.collection<SubmissionRecord>(SUBMISSIONS);
await ensureIndexes(db, submissionIndexes);

const end = Date.now() - 60_000;
let filled = 0;

/** As a relay's outage leaves them: the account is there, the e-mail is due. The latest to be filled in are the oldest. */
async function fill(count: number): Promise<void> {
  const batch = (): SubmissionRecord[] =>
    Array.from({ length: TOGETHER }, () => {
      filled += 1;
      const dueAt = new Date(end - (filled * 1_000) / PER_SECOND);
      return newRecord({ state: 'account_created', version: 1, body: BODY, dueAt });
    });
  for (let have = filled; have < count; have = filled) {
    await Promise.all(Array.from({ length: AT_ONCE }, () => requests.insertMany(batch(), { ordered: false })));
  }
}

async function timeOf<T>(task: () => Promise<T>): Promise<[milliseconds: number, result: T]> {
  const from = performance.now();
  const result = await task();
  return [performance.now() - from, result];
}

const shown = (milliseconds: readonly number[]): string => {
  const sorted = milliseconds.toSorted((one, other) => one - other);
  return `${sorted[Math.floor(sorted.length / 2)]!.toFixed(0)} ms (worst ${sorted.at(-1)!.toFixed(0)})`;
};

for (const count of [0, ...process.argv.slice(2).map(Number)]) {
  await fill(count);
  // As a processor that has just started, and whose worker takes every page.
  const moves = new WorkerMoves({ db, clock, retention: {} });
  const [first] = await timeOf(() => moves.findDue('account_created', RECONCILE_PAGE));
  await moves.findDue('recorded', RECONCILE_PAGE);
  const [pages, unknown]: [number[], number[]] = [[], []];
  let handed = 0;
  for (let round = 0; round < ROUNDS; round += 1) {
    const [took, { records }] = await timeOf(() => moves.findDue('account_created', RECONCILE_PAGE));
    pages.push(took);
    unknown.push((await timeOf(() => moves.countUnknownDue(RECONCILE_PAGE)))[0]);
    handed += records.length;
    await moves.lookAgain(records, REQUEUED_AGAIN_MS, { firstSeen: false });
  }
  console.log(
    `${count} due: first search ${first.toFixed(0)} ms; a page ${shown(pages)}, ${handed} records in ${ROUNDS} pages; ` +
      `unknown records ${shown(unknown)}`,
  );
}
await client.close();
await store.stop();
