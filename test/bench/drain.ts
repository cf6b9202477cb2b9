/**
 * How fast a backlog of accepted applications is worked off, mails included: by our processors, or
 * a naive worker.
 */
import { fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { Queue } from 'bullmq';
import { Redis } from 'ioredis';
import { Binary, type Db, type MongoClient } from 'mongodb';
import { accountIndexes } from '../../internal/account/account.ts';
import { systemClock } from '../../internal/platform/clock.ts';
import { createLogger } from '../../internal/platform/log.ts';
import { ensureIndexes } from '../../internal/platform/mongo-indexes.ts';
import { HintSender } from '../../internal/queue/enqueue.ts';
import { submissionIndexes } from '../../internal/submission/indexes.ts';
import type { SubmissionRecord } from '../../internal/submission/submission.ts';
import { newRecord } from '../support/records.ts';
import { startService, type ServiceProcess } from '../../deploy/local/processes.ts';
import { imageEnvironment } from '../support/image.ts';
import { startProgram } from './load.ts';
import { memoryMib, processorSeconds, secondsByProgram, spentOn } from './processor-time.ts';

export const workers = ['ours', 'naive'] as const;
export type WorkerName = (typeof workers)[number];

export interface DrainResult {
  readonly perSecond: number;
  /** Share of one core the worker used. */
  readonly cpu: number;
  /** Processor seconds of each of the worker's processes, without their start. */
  readonly perProcess: readonly number[];
  /** Of the worker, the mail server, and each program of stores. */
  readonly processorSeconds: Readonly<Record<string, number>>;
  /** Of the largest process. */
  readonly rssMib: number;
  readonly completed: number;
  readonly mails: number;
}

export interface DrainRound extends DrainResult {
  readonly worker: WorkerName;
  readonly round: number;
}

/** Records worked on at the same time, and mail connections, of both workers. */
const CONCURRENCY = 64;
/** A drain that takes longer has failed. */
const DEADLINE_MS = 300_000;
const POLL_MS = 10;

/** Takes every mail and counts it, in a process of its own. */
async function startMailSink() {
  const child = fork(fileURLToPath(new URL('mail-sink.ts', import.meta.url)));
  const exited = new Promise((resolve) => child.once('exit', resolve));
  let count = 0;
  const url = new Promise<string>((resolve) =>
    child.on('message', (message: { readonly url?: string; readonly count?: number }) => {
      if (message.url !== undefined) resolve(message.url);
      count = message.count ?? count;
    }),
  );
  return {
    url: await url,
    pid: child.pid!,
    count: () => count,
    stop: async () => {
      child.kill();
      await exited;
    },
  };
}

export interface DrainOptions {
  readonly size: number;
  readonly mongo: { readonly url: string; readonly client: MongoClient };
  readonly redisUrl: string;
  /** How many processes of ours share the work. */
  readonly processes?: number;
  /** On top of what ours is started with. */
  readonly environment?: Readonly<Record<string, string>>;
  /** Hears of ours as soon as it runs, and once it has sent the last mail. */
  readonly watch?: {
    readonly started: (service: ServiceProcess) => Promise<void>;
    readonly ending: () => Promise<void>;
  };
}

/**
 * Puts `size` applications into an empty database and queue, starts the worker, and times it until
 * the last mail.
 */
export async function drain(worker: WorkerName, options: DrainOptions): Promise<DrainResult> {
  const database = `bench_drain_${worker}`;
  const db = options.mongo.client.db(database);
  await db.dropDatabase();
  const redis = new Redis(options.redisUrl, { maxRetriesPerRequest: null });
  await redis.flushdb();
  const sink = await startMailSink();
  try {
    const ids = await fill(db, options.size);
    await enqueue[worker](ids, redis, options.redisUrl);
    const stores = {
      MONGODB_URI: options.mongo.url,
      MONGODB_DATABASE: database,
      REDIS_URL: options.redisUrl,
      SMTP_URL: sink.url,
      ...options.environment,
    };
    const before = secondsByProgram();
    const startedAt = performance.now();
    const program = await start[worker](stores, options);
    const servingAt = performance.now();
    let firstAt: number | undefined;
    while (sink.count() < options.size && performance.now() - startedAt < DEADLINE_MS) {
      if (sink.count() > 0) firstAt ??= performance.now();
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    }
    const seconds = (performance.now() - (firstAt ?? startedAt)) / 1_000;
    const perProcess = program.processes.map(({ pid, atStart }) => processorSeconds(pid) - atStart);
    const used = perProcess.reduce((sum, value) => sum + value, 0);
    const rssMib = Math.max(...program.processes.map(({ pid }) => memoryMib(pid)));
    const cpu = used / ((performance.now() - servingAt) / 1_000);
    const parts = {
      ...spentOn(before, secondsByProgram(), used),
      relay: processorSeconds(sink.pid),
    };
    const completed = await waitForCompleted(db, options.size);
    await options.watch?.ending();
    await program.stop();
    const mails = sink.count();
    return {
      perSecond: mails / seconds,
      cpu,
      perProcess,
      processorSeconds: parts,
      rssMib,
      completed,
      mails,
    };
  } finally {
    await sink.stop();
    redis.disconnect();
  }
}

async function fill(db: Db, size: number): Promise<string[]> {
  await ensureIndexes(db, [...submissionIndexes, ...accountIndexes]);
  const records = Array.from({ length: size }, (_, index) => {
    const body = JSON.stringify({
      // As many domains as a backlog has: a domain not known as quick holds two places at most.
      email: `drain-${index}@bench-${index % 200}.example`,
      business_name: `Drain Test ${index} Ltd`,
      ein: String(index).padStart(9, '0'),
    });
    // Due far ahead, so that reconcile takes no part.
    return newRecord(
      { dueAt: new Date(Date.now() + DEADLINE_MS), body: new Binary(Buffer.from(body)) },
      body,
    );
  });
  const PER_INSERT = 500;
  for (let start = 0; start < size; start += PER_INSERT) {
    await db
      .collection<SubmissionRecord>('requests')
      .insertMany(records.slice(start, start + PER_INSERT));
  }
  return records.map((record) => record._id);
}

const enqueue: Readonly<
  Record<WorkerName, (ids: readonly string[], redis: Redis, redisUrl: string) => Promise<void>>
> = {
  async ours(ids, _redis, redisUrl) {
    const sender = new HintSender({
      redisUrl,
      clock: systemClock,
      log: createLogger('bench', 'silent'),
    });
    while (!sender.ready) await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    const PER_SEND = 500;
    for (let start = 0; start < ids.length; start += PER_SEND) {
      await sender.send(
        ids.slice(start, start + PER_SEND).map((requestId) => ({ requestId, version: 0 })),
      );
    }
    await sender.close();
  },
  async naive(ids, redis) {
    const queue = new Queue('naive-applications', { connection: redis });
    await queue.addBulk(
      ids.map((requestId) => ({
        name: 'application',
        data: { requestId },
        opts: { jobId: requestId, removeOnComplete: true },
      })),
    );
    await queue.close();
  },
};

interface Worker {
  /** With the processor seconds that each had used when it served. */
  readonly processes: readonly { readonly pid: number; readonly atStart: number }[];
  stop(): Promise<unknown>;
}

const start: Readonly<
  Record<WorkerName, (stores: Record<string, string>, options: DrainOptions) => Promise<Worker>>
> = {
  async ours(stores, { processes = 1, watch }) {
    const environment = {
      MAIL_FROM: 'accounts@bench.example',
      LOGIN_URL: 'https://login.bench.example/',
      LINK_SECRET: 'a-secret-for-the-bench-of-32-characters',
      PROCESSOR_CONCURRENCY: String(CONCURRENCY),
      ...imageEnvironment(),
      ...stores,
    };
    const started = await Promise.all(
      Array.from({ length: processes }, async () => {
        const service = await startService('processor', environment, { compiled: true });
        const pid = service.child.pid ?? 0;
        return { service, pid, atStart: processorSeconds(pid) };
      }),
    );
    for (const { service } of started) await watch?.started(service);
    return {
      processes: started,
      stop: () => Promise.all(started.map(({ service }) => service.stop())),
    };
  },
  async naive(stores) {
    const program = await startProgram('naive-worker.ts', {
      ...stores,
      CONCURRENCY: String(CONCURRENCY),
    });
    const { pid } = program;
    return { processes: [{ pid, atStart: processorSeconds(pid) }], stop: () => program.stop() };
  },
};

async function waitForCompleted(db: Db, size: number): Promise<number> {
  const deadline = performance.now() + 10_000;
  for (;;) {
    const completed = await db.collection('requests').countDocuments({ state: 'completed' });
    if (completed === size || performance.now() > deadline) return completed;
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}
