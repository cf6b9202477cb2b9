/**
 * Variants of our ingest in alternating rounds on the same stores: what something costs. The processor time of a request is
 * told as well, because a busy machine moves it far less than the rate.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { MongoClient } from 'mongodb';
import { writePartnerSecret } from '../../deploy/local/demo-keys.ts';
import { startService } from '../../deploy/local/processes.ts';
import { startMongo, startRedis } from '../../deploy/local/stores.ts';
import { paint, table } from '../../internal/platform/terminal.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { imageEnvironment } from '../support/image.ts';
import { checkLoadGenerator, load, type LoadResult } from './load.ts';
import { median } from './report.ts';

export interface Variant {
  readonly url: string;
  readonly pid: number;
  /** Each request comes with an idempotency key of its own. */
  readonly keyed?: boolean;
}

export interface Bench {
  readonly client: MongoClient;
  readonly key: string;
  readonly mongoUrl: string;
  readonly redisUrl: string;
  /** Starts a process with this on top of the common environment, and waits until it is ready. */
  start(
    name: 'controller' | 'ingest',
    more?: Readonly<Record<string, string>>,
  ): Promise<Variant & { readonly lines: readonly string[] }>;
  closeLater(close: () => Promise<unknown>): void;
}

const log = (line: string): void => console.error(paint('dim', line));

/** Starts the stores, runs `measure` with what it may start on them, and ends all of it. A failure is told and ends the command with 1. */
export async function withBench(measure: (bench: Bench) => Promise<void>): Promise<void> {
  const opened: (() => Promise<unknown>)[] = [];
  try {
    await checkLoadGenerator();
    const [mongo, redis] = await Promise.all([startMongo({ log }), startRedis({ log })]);
    const client = new MongoClient(mongo.url);
    const keyFolder = await mkdtemp(join(tmpdir(), 'bench-keys-'));
    opened.push(
      () => mongo.stop(),
      () => redis.stop(),
      () => client.close(),
      () => rm(keyFolder, { recursive: true }),
    );
    const key = newApiKey();
    await writePartnerSecret(keyFolder, { partner: 'bench', keys: [key] });
    const environment = {
      MONGODB_URI: mongo.url,
      MONGODB_DATABASE: 'bench_variants',
      REDIS_URL: redis.url,
      PARTNER_KEYS_SOURCE: `directory:${keyFolder}`,
      TRUSTED_PROXIES: '127.0.0.0/8',
      ...imageEnvironment(),
    };
    await measure({
      client,
      key,
      mongoUrl: mongo.url,
      redisUrl: redis.url,
      closeLater: (close) => void opened.push(close),
      async start(name, more = {}) {
        const service = await startService(name, { ...environment, ...more }, { compiled: true });
        opened.push(() => service.stop());
        await service.ready();
        return { url: service.url, pid: service.child.pid ?? 0, lines: service.lines };
      },
    });
  } catch (error) {
    console.error(paint('red', error instanceof Error ? error.message : String(error)));
    process.exitCode = 1;
  } finally {
    for (const close of opened.toReversed()) await close().catch((error: unknown) => console.error(error));
  }
}

/** Opens the variants, loads them in turn and prints a table; the first variant is what the others are compared with. */
export async function compareVariants(
  title: string,
  open: (bench: Bench) => Promise<Readonly<Record<string, Variant>>>,
): Promise<void> {
  const { values: flags } = parseArgs({
    options: {
      rounds: { type: 'string', default: '6' },
      seconds: { type: 'string', default: '4' },
      connections: { type: 'string', default: '64' },
    },
  });
  await withBench(async (bench) => {
    const variants = await open(bench);
    const plan = { key: bench.key, connections: Number(flags.connections), seconds: Number(flags.seconds) };
    console.log(compared(title, await alternate(variants, plan, Number(flags.rounds))));
  });
}

async function alternate(
  variants: Readonly<Record<string, Variant>>,
  plan: { readonly key: string; readonly connections: number; readonly seconds: number },
  count: number,
): Promise<Readonly<Record<string, readonly LoadResult[]>>> {
  const rounds: Record<string, LoadResult[]> = {};
  // The first round of each warms its code up and does not count.
  for (let number = 0; number <= count; number += 1) {
    for (const [name, variant] of Object.entries(variants)) {
      const result = await load({ ...variant, ...plan });
      if (result.badStatus > 0) throw new Error(`${name}: answers other than 2xx, so its figures mean nothing`);
      if (number > 0) (rounds[name] ??= []).push(result);
      log(`round ${number}, ${name}: ${Math.round(rate(result))}/s, ${Math.round(microseconds(result))} µs`);
    }
  }
  return rounds;
}

const rate = ({ requests, seconds }: LoadResult): number => requests / seconds;
const microseconds = (round: LoadResult): number => (round.cpu / rate(round)) * 1e6;

/** Ratios are medians of the rounds' own ratios, so that a drift of the machine cancels out. */
function compared(title: string, rounds: Readonly<Record<string, readonly LoadResult[]>>): string {
  const [[first, base] = ['', []]] = Object.entries(rounds);
  const rows = Object.entries(rounds).map(([name, results]) => [
    name,
    `${Math.round(median(results.map(rate)))}/s`,
    median(results.map((result, index) => rate(result) / rate(base[index]!))).toFixed(2),
    `${Math.round(median(results.map(microseconds)))} µs`,
    median(results.map((result, index) => microseconds(result) / microseconds(base[index]!))).toFixed(2),
    `${median(results.map(({ p99Ms }) => p99Ms)).toFixed(0)} ms`,
    `${Math.round(Math.max(...results.map(({ rssMib }) => rssMib)))} MiB`,
  ]);
  return table([[title, 'accepts', `of ${first}`, 'CPU a request', `of ${first}`, 'p99', 'RSS'], ...rows]);
}
