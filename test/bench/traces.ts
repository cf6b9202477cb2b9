/**
 * `make bench OF=traces`: what tracing costs the contender: off, with one trace in a hundred, and with all, in alternating rounds
 * on the same stores. The processor time of a request is told as well, because a busy machine moves it far less.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { writePartnerSecret } from '../../deploy/local/demo-keys.ts';
import { startService } from '../../deploy/local/processes.ts';
import { startMongo, startRedis } from '../../deploy/local/stores.ts';
import { paint, table } from '../../internal/platform/terminal.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { imageEnvironment } from '../support/image.ts';
import { checkLoadGenerator, load, type LoadResult } from './load.ts';
import { median } from './report.ts';

const { values: flags } = parseArgs({
  options: {
    rounds: { type: 'string', default: '6' },
    seconds: { type: 'string', default: '4' },
    connections: { type: 'string', default: '64' },
  },
});

const log = (line: string): void => console.error(paint('dim', line));
const opened: (() => Promise<unknown>)[] = [];

/** A collector that takes spans and throws them away; gives its address. */
async function startCollector(): Promise<string> {
  const server = createServer((request, response) => request.resume().once('end', () => response.end()));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  opened.push(() => new Promise((resolve) => server.close(resolve)));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

async function main(): Promise<void> {
  await checkLoadGenerator();
  const OTEL_EXPORTER_OTLP_ENDPOINT = await startCollector();
  const [mongo, redis] = await Promise.all([startMongo({ log }), startRedis({ log })]);
  opened.push(
    () => mongo.stop(),
    () => redis.stop(),
  );
  const key = newApiKey();
  const keyFolder = await mkdtemp(join(tmpdir(), 'bench-keys-'));
  opened.push(() => rm(keyFolder, { recursive: true }));
  await writePartnerSecret(keyFolder, { partner: 'bench', keys: [key] });
  const environment = {
    MONGODB_URI: mongo.url,
    MONGODB_DATABASE: 'bench_traces',
    REDIS_URL: redis.url,
    PARTNER_KEYS_SOURCE: `directory:${keyFolder}`,
    TRUSTED_PROXIES: '127.0.0.0/8',
    ...imageEnvironment(),
  };
  const sampled = { OTEL_TRACES_SAMPLER: 'traceidratio', OTEL_TRACES_SAMPLER_ARG: '0.01' };
  const start = async (name: 'controller' | 'ingest', more: Readonly<Record<string, string>> = {}) => {
    const service = await startService(name, { ...environment, ...more }, { compiled: true });
    opened.push(() => service.stop());
    await service.ready();
    return { url: service.url, pid: service.child.pid ?? 0 };
  };
  await start('controller');
  const contenders = {
    off: await start('ingest'),
    '1 %': await start('ingest', { OTEL_EXPORTER_OTLP_ENDPOINT, ...sampled }),
    all: await start('ingest', { OTEL_EXPORTER_OTLP_ENDPOINT }),
  };

  const rounds: Record<string, LoadResult[]> = {};
  // The first round of each warms its code up and does not count.
  for (let number = 0; number <= Number(flags.rounds); number += 1) {
    for (const [traces, contender] of Object.entries(contenders)) {
      const plan = { ...contender, key, connections: Number(flags.connections), seconds: Number(flags.seconds) };
      const result = await load(plan);
      if (number > 0) (rounds[traces] ??= []).push(result);
      log(`round ${number}, traces ${traces}: ${Math.round(result.requests / result.seconds)}/s`);
    }
  }
  const rate = ({ requests, seconds }: LoadResult): number => requests / seconds;
  const microseconds = (round: LoadResult): number => (round.cpu / rate(round)) * 1e6;
  const rows = Object.entries(rounds).map(([traces, results]) => [
    traces,
    `${Math.round(median(results.map(rate)))}/s`,
    median(results.map((result, index) => rate(result) / rate(rounds['off']![index]!))).toFixed(2),
    `${Math.round(median(results.map(microseconds)))} µs`,
    median(results.map((result, index) => microseconds(result) / microseconds(rounds['off']![index]!))).toFixed(2),
    `${Math.round(Math.max(...results.map(({ rssMib }) => rssMib)))} MiB`,
  ]);
  console.log(table([['traces', 'accepts', 'of off', 'CPU a request', 'of off', 'RSS'], ...rows]));
  const bad = Object.values(rounds).flatMap((results) => results.filter(({ badStatus }) => badStatus > 0));
  if (bad.length > 0) throw new Error(`${bad.length} rounds had answers other than 2xx: these figures mean nothing`);
}

try {
  await main();
} catch (error) {
  console.error(paint('red', error instanceof Error ? error.message : String(error)));
  process.exitCode = 1;
} finally {
  for (const close of opened.toReversed()) await close().catch((error: unknown) => console.error(error));
}
