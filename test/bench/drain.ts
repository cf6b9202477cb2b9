/**
 * How fast a backlog of accepted applications is worked off, mails included: by processors of ours,
 * or a naive worker. The ingest of the same build accepts the backlog before.
 */
import { fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { Redis } from 'ioredis';
import { accountIndexes } from '../../internal/account/account.ts';
import { ensureIndexes } from '../../internal/platform/stores/mongo-indexes.ts';
import { submissionIndexes } from '../../internal/submission/submission.ts';
import { eventually } from '../support/wait.ts';
import { startProcessorTime, startProgram, type Server } from './load.ts';
import type { Bench, Owner } from './own-world.ts';
import type { Sample } from './rows.ts';

/** Records worked on at the same time, and mail connections, of every worker. */
const CONCURRENCY = 64;
const DEADLINE_MS = 300_000;
const SENDERS = 64;
/** Requests of one client address, below the limit of 300 a minute. */
const PER_ADDRESS = 250;

type Running = Server & { stop(): Promise<unknown> };

export interface Worker {
  readonly owner: Owner;
  /** On empty stores; what is accepted waits when all of it has stopped, the last one first. */
  readonly startAccepting: () => Promise<readonly Running[]>;
  readonly startWork: (smtpUrl: string) => Promise<readonly Running[]>;
}

/**
 * Lets `size` applications be accepted into an empty database and queue, starts the worker, and
 * measures until all are completed; the rate is that from its first mail to the last.
 */
export async function drain(
  { client, key }: Bench,
  { owner, startAccepting, startWork }: Worker,
  size: number,
): Promise<Sample> {
  const db = client.db(owner.stores.MONGODB_DATABASE);
  await db.dropDatabase();
  const redis = new Redis(owner.stores.REDIS_URL, { maxRetriesPerRequest: null });
  await redis.flushdb();
  redis.disconnect();
  const accepting = await startAccepting();
  await submit(accepting.at(-1)!.url, key, size);
  for (const one of accepting.toReversed()) await one.stop();

  const sink = await startMailSink();
  const workers = await startWork(sink.url);
  try {
    const measure = startProcessorTime(workers[0]!.pid);
    await eventually('the last mail', () => sink.count >= size, DEADLINE_MS);
    const completed = (): Promise<number> =>
      db.collection('requests').countDocuments({ state: 'completed' });
    await eventually('all to be completed', async () => (await completed()) === size);
    const seconds = (sink.lastAt - sink.firstAt) / 1_000;
    return { count: size, seconds, processorSeconds: measure() };
  } finally {
    for (const one of workers) await one.stop();
    await sink.stop();
  }
}

async function submit(url: string, key: string, size: number): Promise<void> {
  let next = 0;
  const send = async (): Promise<void> => {
    for (let index = next++; index < size; index = next++) {
      const address = Math.floor(index / PER_ADDRESS);
      const response = await fetch(`${url}/api/v1/capital/ingest`, {
        method: 'POST',
        headers: {
          Authorization: `Bearer ${key}`,
          'Content-Type': 'application/json',
          'X-Forwarded-For': `11.${address >> 8}.${address & 255}.1`,
        },
        body: JSON.stringify({
          // A real backlog has many domains, and an unknown one may hold only two places.
          email: `drain-${index}@bench-${index % 200}.example`,
          business_name: `Drain Test ${index} Ltd`,
          ein: String(100_000_000 + index),
        }),
      });
      const answer = await response.text();
      if (response.status !== 202) throw new Error(`ingest said ${response.status}: ${answer}`);
    }
  };
  await Promise.all(Array.from({ length: SENDERS }, send));
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

/** A processor of a build. */
export function processorOf(bench: Bench, owner: Owner): Worker {
  const settings = {
    MAIL_FROM: 'accounts@bench.example',
    LOGIN_URL: 'https://login.bench.example/',
    LINK_SECRET: 'a-secret-for-the-bench-of-32-characters',
    PROCESSOR_CONCURRENCY: String(CONCURRENCY),
  };
  return {
    owner,
    startAccepting: async () => [
      await startReady(bench, 'controller', owner),
      await startReady(bench, 'ingest', owner),
    ],
    startWork: async (smtpUrl) => [
      running(await bench.start('processor', owner, { ...settings, SMTP_URL: smtpUrl })),
    ],
  };
}

/** Starts an ingest or controller and waits until it is ready. */
export async function startReady(
  bench: Bench,
  name: 'controller' | 'ingest',
  owner: Owner,
): Promise<Running> {
  const service = await bench.start(name, owner);
  await service.ready();
  return running(service);
}

const running = ({ url, child, stop }: Awaited<ReturnType<Bench['start']>>): Running => ({
  url,
  pid: child.pid!,
  stop,
});

/** The naive worker, behind the naive ingest. */
export const naiveWorker = (bench: Bench, owner: Owner): Worker => ({
  owner,
  startAccepting: async () => [await startNaive(bench, 'naive-ingest.ts', owner)],
  startWork: async (smtpUrl) => [
    await startNaive(bench, 'naive-worker.ts', owner, {
      SMTP_URL: smtpUrl,
      CONCURRENCY: String(CONCURRENCY),
    }),
  ],
});

export async function startNaive(
  bench: Bench,
  file: 'naive-ingest.ts' | 'naive-worker.ts',
  { stores }: Owner,
  settings: Readonly<Record<string, string>> = {},
): Promise<Running> {
  // The first inserts must not all create the collection.
  const db = bench.client.db(stores.MONGODB_DATABASE);
  await ensureIndexes(db, [...submissionIndexes, ...accountIndexes]);
  const program = await startProgram(file, {
    MONGODB_URI: bench.mongoUrl,
    API_KEY: bench.key,
    ...stores,
    ...settings,
  });
  bench.closeLater(() => program.stop());
  return program;
}
