/**
 * `make bench`: our door, the naive durable door and a bare Fastify, in alternating rounds on the same stores.
 *
 * Only the ratios of one run mean anything: the machine's speed drifts, and load generator, database and server share it.
 */
import { spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { MongoClient } from 'mongodb';
import { writePartnerSecret } from '../../deploy/local/demo-keys.ts';
import { startService, type ServiceProcess } from '../../deploy/local/processes.ts';
import { startMongo, startRedis } from '../../deploy/local/stores.ts';
import { paint, table } from '../../deploy/local/terminal.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { checkLoadGenerator, load, type LoadResult } from './load.ts';

const { values: flags } = parseArgs({
  options: {
    rounds: { type: 'string', default: '3' },
    seconds: { type: 'string', default: '5' },
    connections: { type: 'string', default: '1,64,256' },
    json: { type: 'string' },
    help: { type: 'boolean', default: false },
  },
});
const HELP = `usage: make bench [BENCH="--rounds 3 --seconds 5 --connections 1,64,256 --json FILE"]`;

const doors = ['ours', 'naive', 'bare'] as const;
type Door = (typeof doors)[number];

interface Round extends LoadResult {
  readonly door: Door;
  readonly connections: number;
  readonly round: number;
}

interface Server {
  readonly url: string;
  readonly pid: number;
  /** Records stored and 202s given since the start, where the server stores at all. */
  check?(): Promise<{ readonly stored: number; readonly accepted: number; readonly perWrite: number }>;
  stop(): Promise<unknown>;
}

const opened: (() => Promise<unknown>)[] = [];
const log = (line: string): void => console.error(paint('dim', line));

async function main(): Promise<number> {
  await checkLoadGenerator();
  const [mongo, redis] = await Promise.all([startMongo({ log }), startRedis({ log })]);
  opened.push(
    () => mongo.stop(),
    () => redis.stop(),
  );
  const client = new MongoClient(mongo.url);
  opened.push(() => client.close());
  const key = newApiKey();
  const keyFolder = await mkdtemp(join(tmpdir(), 'bench-keys-'));
  opened.push(() => rm(keyFolder, { recursive: true }));
  await writePartnerSecret(keyFolder, { partner: 'bench', keys: [key] });

  const stores = { MONGODB_URI: mongo.url, LOG_LEVEL: 'warn', PARTNER_KEYS_SOURCE: `directory:${keyFolder}` };
  const ours = { ...stores, REDIS_URL: `${redis.url}/1`, MONGODB_DATABASE: 'bench_ours', LOG_LEVEL: 'info' };
  const controller = await startService('controller', ours, { compiled: true });
  opened.push(() => controller.stop());
  const ingest = await startService(
    'ingest',
    { ...ours, TRUSTED_PROXIES: '127.0.0.0/8', NODE_OPTIONS: process.env['INGEST_NODE_OPTIONS'] ?? '' },
    { compiled: true },
  );
  opened.push(() => ingest.stop());
  await ingest.ready();
  const naiveDatabase = client.db('bench_naive');
  await naiveDatabase.createCollection('requests');

  const servers: Record<Door, Server> = {
    ours: {
      url: ingest.url,
      pid: ingest.child.pid ?? 0,
      stop: () => ingest.stop(),
      check: async () => ({
        stored: await client.db('bench_ours').collection('requests').countDocuments({ state: 'recorded' }),
        accepted: await metric(ingest, 'partner_ingest_requests_total', 'status="202"'),
        perWrite:
          (await metric(ingest, 'partner_ingest_batch_documents_sum')) /
          (await metric(ingest, 'partner_ingest_batch_documents_count')),
      }),
    },
    naive: await startProgram('naive-door.ts', {
      MONGODB_URI: mongo.url,
      REDIS_URL: `${redis.url}/2`,
      MONGODB_DATABASE: 'bench_naive',
      API_KEY: key,
    }),
    bare: await startProgram('bare-door.ts', {}),
  };

  const rounds: Round[] = [];
  for (const connections of flags.connections.split(',').map(Number)) {
    for (let round = 1; round <= Number(flags.rounds); round += 1) {
      for (const door of doors) {
        const server = servers[door];
        const result = await load({
          url: server.url,
          key,
          connections,
          seconds: Number(flags.seconds),
          pid: server.pid,
        });
        rounds.push({ door, connections, round, ...result });
        log(`${connections} connections, round ${round}, ${door}: ${Math.round(result.requests / result.seconds)}/s`);
      }
    }
  }

  const checked = await servers.ours.check?.();
  console.log(report(rounds));
  const bad = rounds.reduce((sum, { badStatus }) => sum + badStatus, 0);
  // wrk leaves in the middle of its last requests: those are stored, and nobody is there to take their answer.
  const unfinished = rounds
    .filter(({ door }) => door === 'ours')
    .reduce((sum, { connections }) => sum + connections, 0);
  const surplus = checked === undefined ? Number.NaN : checked.stored - checked.accepted;
  const agrees = surplus >= 0 && surplus <= unfinished && bad === 0;
  console.log(
    `\nours: ${checked?.accepted} answers 202, ${checked?.stored} records stored, ${bad} answers other than 2xx, ` +
      `${checked?.perWrite.toFixed(1)} records a write: ${agrees ? paint('green', 'they agree') : paint('red', 'THEY DO NOT AGREE')}`,
  );
  if (flags.json !== undefined) {
    await writeFile(flags.json, `${JSON.stringify({ rounds, checked, summary: summarise(rounds) }, null, 2)}\n`);
  }
  return agrees ? 0 : 1;
}

function median(values: readonly number[]): number {
  const sorted = values.toSorted((one, other) => one - other);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}

function summarise(rounds: readonly Round[]) {
  const connectionCounts = [...new Set(rounds.map(({ connections }) => connections))];
  return connectionCounts.flatMap((connections) => {
    const of = (door: Door): Round[] =>
      rounds.filter((round) => round.door === door && round.connections === connections);
    const rate = (round: Round | undefined): number =>
      round === undefined ? Number.NaN : round.requests / round.seconds;
    /** The ratio round by round, so that a drift of the machine's speed cancels out. */
    const ratio = (other: Door): number =>
      median(of('ours').map((round, index) => rate(round) / rate(of(other)[index])));
    return doors.map((door) => ({
      connections,
      door,
      perSecond: median(of(door).map(rate)),
      p50Ms: median(of(door).map(({ p50Ms }) => p50Ms)),
      p99Ms: median(of(door).map(({ p99Ms }) => p99Ms)),
      cpu: median(of(door).map(({ cpu }) => cpu)),
      rssMb: Math.max(...of(door).map(({ rssMb }) => rssMb)),
      oursRatio: door === 'ours' ? 1 : ratio(door),
    }));
  });
}

function report(rounds: readonly Round[]): string {
  const rows = summarise(rounds).map((row) => [
    String(row.connections),
    row.door,
    `${Math.round(row.perSecond)}/s`,
    `${row.p50Ms.toFixed(1)} ms`,
    `${row.p99Ms.toFixed(1)} ms`,
    `${Math.round(row.cpu * 100)} %`,
    `${Math.round(row.rssMb)} MB`,
    row.door === 'ours' ? '' : `${row.oursRatio.toFixed(2)} x`,
  ]);
  return table([['connections', 'door', 'accepts', 'p50', 'p99', 'CPU', 'RSS', 'ours is'], ...rows]);
}

async function metric(process: ServiceProcess, name: string, label = ''): Promise<number> {
  const text = await (await fetch(`${process.adminUrl}/metrics`)).text();
  const line = text.split('\n').find((candidate) => candidate.startsWith(name) && candidate.includes(label));
  return Number(line?.slice(line.lastIndexOf(' ')) ?? Number.NaN);
}

/** Starts one of the baselines beside this file and waits for its address. */
async function startProgram(file: string, environment: Record<string, string>): Promise<Server> {
  const path = fileURLToPath(new URL(file, import.meta.url));
  const child = spawn(process.execPath, [path], { env: environment, stdio: ['ignore', 'pipe', 'inherit'] });
  const exited = new Promise((resolve) => child.once('exit', resolve));
  opened.push(async () => {
    child.kill('SIGTERM');
    await exited;
  });
  for await (const line of createInterface(child.stdout)) {
    const { url } = JSON.parse(line) as { url: string };
    return { url, pid: child.pid ?? 0, stop: () => exited };
  }
  throw new Error(`${file} ended before it served`);
}

if (flags.help) console.log(HELP);
else {
  try {
    process.exitCode = await main();
  } catch (error) {
    console.error(paint('red', error instanceof Error ? error.message : String(error)));
    process.exitCode = 1;
  } finally {
    for (const close of opened.toReversed()) await close().catch((error: unknown) => console.error(error));
  }
}
