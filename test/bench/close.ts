/**
 * A million dead letters closed by one query of an operator: `node test/bench/close.ts 1000000`.
 *
 * The real command lists first, is interrupted at a third, and goes on. Then the database says what became of each record.
 */
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { Binary } from 'mongodb';
import { startMongo } from '../../deploy/local/stores.ts';
import { accountIndexes, ACCOUNTS, type Account } from '../../internal/account/account.ts';
import { checkChain } from '../../internal/audit/chain.ts';
import type { TrailEntry } from '../../internal/audit/entry.ts';
import { OPERATOR_AUDIT } from '../../internal/audit/trail.ts';
import { newId } from '../../internal/platform/ids.ts';
import { createMongo } from '../../internal/platform/mongo.ts';
import { ensureIndexes } from '../../internal/platform/mongo-indexes.ts';
import { submissionIndexes } from '../../internal/submission/indexes.ts';
import { SUBMISSIONS, type SubmissionRecord } from '../../internal/submission/submission.ts';
import { newRecord } from '../support/records.ts';

const RECORDS = Number(process.argv[2] ?? 20_000);
const DATABASE = 'bench';
const BODY = new Binary(Buffer.alloc(1_000, 'x'));
const TOGETHER = 2_000;
/** Every so many-th dead letter is of another partner and must stay. */
const OTHER = 100;
/** Claims differ, as attempts do. */
const VERSIONS = 20;
const QUERY = ['close', '--state', 'dead_lettered', '--partner', 'acme', '--reason', 'answered 451', '--since', '7d'];

const store = await startMongo({ log: () => {} });
const client = createMongo(store.url, 'bench close', { socketTimeoutMS: 600_000 });
const db = client.db(DATABASE);
const requests = db.collection<SubmissionRecord>(SUBMISSIONS);
const accounts = db.collection<Account>(ACCOUNTS);
await ensureIndexes(db, [...submissionIndexes, ...accountIndexes]);

/** As three days without a relay leave them: every second one has its account already. */
function deadLetter(number: number): [SubmissionRecord, Account?] {
  const at = new Date();
  const _id = newId('req');
  const dead = {
    _id,
    state: 'dead_lettered',
    version: 1 + (number % VERSIONS),
    partnerId: number % OTHER === 0 ? 'other' : 'acme',
    body: BODY,
    lastError: 'the mail server answered 451',
    history: [{ state: 'dead_lettered', at, attempt: 1 }],
  } as const;
  const { dueAt: _, ...record } = newRecord(dead);
  if (number % 2 === 0) return [record];
  const mark = String(number);
  const account = { _id: newId('acc'), requestId: _id, email: mark, emailNormalized: mark, ein: mark };
  const known = { ...account, businessName: 'Acme', partnerId: 'acme', createdAt: at };
  return [{ ...record, accountId: account._id }, known];
}

async function fill(): Promise<void> {
  for (let from = 0; from < RECORDS; from += TOGETHER) {
    const made = Array.from({ length: Math.min(TOGETHER, RECORDS - from) }, (_, index) => deadLetter(from + index));
    await requests.insertMany(
      made.map(([record]) => record),
      { ordered: false },
    );
    await accounts.insertMany(
      made.flatMap(([, account]) => account ?? []),
      { ordered: false },
    );
  }
}

interface Ran {
  readonly code: number | null;
  readonly stdout: string;
  readonly seconds: number;
  readonly peakMiB: number;
  /** Where it says to go on. */
  readonly after: string | undefined;
}

const PEAK = 'process.on("exit", () => console.error(`peak ${process.resourceUsage().maxRSS}`))';

/** The real command as a process of its own; Ctrl-C once it has closed `interruptAt`. */
async function partnerIngest(words: readonly string[], interruptAt = Infinity): Promise<Ran> {
  const from = performance.now();
  const child = spawn(
    process.execPath,
    ['--import', `data:text/javascript,${encodeURIComponent(PEAK)}`, 'cmd/cli/main.ts', ...words, '--json'],
    // oxlint-disable-next-line node/no-process-env -- the command's own settings are added to what this one was given
    { env: { ...process.env, MONGODB_URI: store.url, MONGODB_DATABASE: DATABASE }, stdio: ['ignore', 'pipe', 'pipe'] },
  );
  const ended = new Promise<number | null>((resolve) => child.once('close', resolve));
  let [stdout, peakKiB, closed, after] = ['', 0, 0, undefined as string | undefined];
  child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text));
  for await (const line of createInterface({ input: child.stderr })) {
    after = / --after (req_\w+)/.exec(line)?.[1] ?? after;
    peakKiB = Number(/^peak (\d+)/.exec(line)?.[1] ?? peakKiB);
    if (!line.startsWith('{')) {
      if (!line.startsWith('peak')) console.log(`  ${line}`);
      continue;
    }
    const { operator_audit: entry } = JSON.parse(line) as { operator_audit: TrailEntry };
    const before = closed;
    closed += entry.result === 'done' ? (entry.count ?? 1) : 0;
    if (before < interruptAt && closed >= interruptAt) child.kill('SIGINT');
  }
  const code = await ended;
  return { code, stdout, seconds: (performance.now() - from) / 1_000, peakMiB: peakKiB / 1_024, after };
}

function show(what: string, { code, seconds, peakMiB }: Ran, count: number): void {
  const rate = Math.round(count / seconds);
  console.log(
    `${what}: ${count} in ${seconds.toFixed(1)} s, ${rate} a second, ${peakMiB.toFixed(0)} MiB, exit ${code}`,
  );
}

/** Each matching record was moved once, to the state its account asks for, and all others are as they were. */
async function verify(matching: number): Promise<void> {
  const once = { partnerId: 'acme', history: { $size: 2 }, 'history.1.reason': /^operator closed it: ticket 4711/ };
  const rejected = await requests.countDocuments({ ...once, state: 'rejected', accountId: { $exists: false } });
  const undeliverable = await requests.countDocuments({
    ...once,
    state: 'undeliverable',
    accountId: { $exists: true },
  });
  const untouched = await requests.countDocuments({
    state: 'dead_lettered',
    partnerId: 'other',
    history: { $size: 1 },
  });
  const trail = db.collection<TrailEntry>(OPERATOR_AUDIT);
  const done = await trail.find({ action: 'close', result: 'done' }).toArray();
  const noted = done.reduce((sum, { count = 1 }) => sum + count, 0);
  const { breaks, entries } = await checkChain(trail.find().sort({ seq: 1 }), new Date());
  console.log(
    `closed once: ${rejected} rejected + ${undeliverable} undeliverable of ${matching}; not matching and untouched: ${untouched}; ` +
      `operator_audit: ${noted} closed in ${entries} entries, ${breaks.length} breaks`,
  );
  const right = rejected + undeliverable === matching && untouched === RECORDS - matching && noted === matching;
  if (!right || breaks.length > 0) throw new Error('not every record was closed once');
}

try {
  await fill();
  const matching = await requests.countDocuments({ partnerId: 'acme' });
  console.log(`${RECORDS} dead letters, ${matching} match`);
  show('dry run', await partnerIngest(QUERY), matching);
  const order = [...QUERY, '--yes', '--why', 'ticket 4711'];
  const first = await partnerIngest(order, matching / 3);
  const { closed } = JSON.parse(first.stdout) as { closed: number };
  show('until Ctrl-C', first, closed);
  show('the rest', await partnerIngest([...order, '--after', first.after ?? 'nowhere']), matching - closed);
  await verify(matching);
} finally {
  await client.close();
  await store.stop();
}
