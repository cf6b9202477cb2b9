/**
 * How fast a backlog of accepted applications is worked off, mails included: by our processors, or
 * a naive worker.
 */
import { fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { Queue } from 'bullmq';
import { Redis } from 'ioredis';
import { Binary, type Db } from 'mongodb';
import { accountIndexes } from '../../internal/account/account.ts';
import { InstallationStore, newInstallationId } from '../../internal/installation/installation.ts';
import { systemClock } from '../../internal/platform/process/clock.ts';
import { createLogger } from '../../internal/platform/process/log.ts';
import { ensureIndexes } from '../../internal/platform/stores/mongo-indexes.ts';
import { HintSender } from '../../internal/queue/enqueue.ts';
import { submissionIndexes, type SubmissionRecord } from '../../internal/submission/submission.ts';
import { newRecord } from '../support/records.ts';
import { eventually } from '../support/wait.ts';
import { startService } from '../../deploy/local/processes.ts';
import { imageEnvironment } from '../support/image.ts';
import { processorSeconds, startProcessorTime, startProgram } from './load.ts';
import type { Bench } from './own-world.ts';
import type { Sample } from './rounds.ts';

export type WorkerName = 'ours' | 'naive';

/** Records worked on at the same time, and mail connections, of both workers. */
const CONCURRENCY = 64;
const DEADLINE_MS = 300_000;
/** Records in one insert, and hints in one command. */
const AT_ONCE = 500;

interface DrainOptions {
  readonly size: number;
  readonly processes: number;
}

/**
 * Puts `size` applications into an empty database and queue, starts the worker, and times it from
 * its first mail to the last.
 */
export async function drain(
  { client, mongoUrl, redisUrl: server }: Bench,
  worker: WorkerName,
  options: DrainOptions,
): Promise<Sample> {
  const { size } = options;
  const [database, redisUrl] = [`bench_drain_${worker}`, `${server}/3`];
  const db = client.db(database);
  await db.dropDatabase();
  const redis = new Redis(redisUrl, { maxRetriesPerRequest: null });
  await redis.flushdb();
  const sink = await startMailSink();
  try {
    const ids = await fill(db, size);
    await (worker === 'ours' ? sendHints(ids, redisUrl, db) : addJobs(ids, redis));
    const started = await start[worker](
      {
        MONGODB_URI: mongoUrl,
        MONGODB_DATABASE: database,
        REDIS_URL: redisUrl,
        SMTP_URL: sink.url,
      },
      options,
    );
    const measure = startProcessorTime(started.pids);
    await eventually('the last mail', () => sink.count === size, DEADLINE_MS);
    const seconds = (sink.lastAt - sink.firstAt) / 1_000;
    const spent = { ...measure(), relay: processorSeconds(sink.pid) };
    const completed = (): Promise<number> =>
      db.collection('requests').countDocuments({ state: 'completed' });
    await eventually('all to be completed', async () => (await completed()) === size);
    await started.stop();
    return { count: size, seconds, processorSeconds: spent };
  } finally {
    await sink.stop();
    redis.disconnect();
  }
}

/** Takes every mail and counts it, in a process of its own. */
async function startMailSink() {
  const child = fork(fileURLToPath(new URL('mail-sink.ts', import.meta.url)));
  const exited = new Promise((resolve) => child.once('exit', resolve));
  const sink = {
    url: '',
    pid: child.pid!,
    count: 0,
    firstAt: Infinity,
    lastAt: 0,
    stop: async () => {
      child.kill();
      await exited;
    },
  };
  sink.url = await new Promise<string>((resolve) =>
    child.on(
      'message',
      ({ url, count = 0 }: { readonly url?: string; readonly count?: number }) => {
        if (url !== undefined) resolve(url);
        if (count === sink.count) return;
        sink.count = count;
        sink.lastAt = performance.now();
        sink.firstAt = Math.min(sink.firstAt, sink.lastAt);
      },
    ),
  );
  return sink;
}

async function fill(db: Db, size: number): Promise<string[]> {
  await ensureIndexes(db, [...submissionIndexes, ...accountIndexes]);
  const records = Array.from({ length: size }, (_, index) => {
    const body = JSON.stringify({
      // A real backlog has many domains, and an unknown one may hold only two places.
      email: `drain-${index}@bench-${index % 200}.example`,
      business_name: `Drain Test ${index} Ltd`,
      ein: String(index).padStart(9, '0'),
    });
    // `dueAt` is so far ahead that reconcile takes no part.
    const dueAt = new Date(Date.now() + DEADLINE_MS);
    return newRecord({ dueAt, body: new Binary(Buffer.from(body)) }, body);
  });
  for (let from = 0; from < size; from += AT_ONCE) {
    const requests = db.collection<SubmissionRecord>('requests');
    await requests.insertMany(records.slice(from, from + AT_ONCE));
  }
  return records.map((record) => record._id);
}

async function sendHints(ids: readonly string[], redisUrl: string, db: Db): Promise<void> {
  const log = createLogger('bench', 'silent');
  const installation = { id: newInstallationId() };
  // The processors start later and find it.
  await new InstallationStore({ db, clock: systemClock }).make(installation);
  const sender = new HintSender({ redisUrl, log });
  sender.follow(installation.id);
  await eventually('the sender of hints', () => sender.ready);
  const hints = ids.map((requestId) => ({ requestId, version: 0 }));
  for (let from = 0; from < hints.length; from += AT_ONCE)
    await sender.send(hints.slice(from, from + AT_ONCE));
  await sender.close();
}

async function addJobs(ids: readonly string[], connection: Redis): Promise<void> {
  const queue = new Queue('naive-applications', { connection });
  const jobs = ids.map((requestId) => ({
    name: 'application',
    data: { requestId },
    opts: { jobId: requestId, removeOnComplete: true },
  }));
  await queue.addBulk(jobs);
  await queue.close();
}

interface Started {
  readonly pids: readonly number[];
  stop(): Promise<unknown>;
}

const start: Readonly<
  Record<WorkerName, (stores: Record<string, string>, options: DrainOptions) => Promise<Started>>
> = {
  async ours(stores, { processes }) {
    const environment = {
      MAIL_FROM: 'accounts@bench.example',
      LOGIN_URL: 'https://login.bench.example/',
      LINK_SECRET: 'a-secret-for-the-bench-of-32-characters',
      PROCESSOR_CONCURRENCY: String(CONCURRENCY),
      ...imageEnvironment(),
      ...stores,
    };
    const services = await Promise.all(
      Array.from({ length: processes }, () =>
        startService('processor', environment, { compiled: true }),
      ),
    );
    return {
      pids: services.map(({ child }) => child.pid!),
      stop: () => Promise.all(services.map((service) => service.stop())),
    };
  },
  async naive(stores) {
    const environment = { ...stores, CONCURRENCY: String(CONCURRENCY) };
    const program = await startProgram('naive-worker.ts', environment);
    return { pids: [program.pid], stop: () => program.stop() };
  },
};
