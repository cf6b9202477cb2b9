/**
 * `make bench`: how fast we accept and how fast we work off, against straightforward
 * implementations. `FROM=commit`: how fast that version accepts and we do. `OF=scale`: what 1, 2 and 4
 * processes of ours cost each part. `OF=latency`: how long answers take at fixed rates.
 *
 * Only ratios and processor times of one run mean anything: the machine's speed varies, and load
 * generator, database and server share it.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { run } from '../../tools/program.ts';
import { versionAt } from '../upgrade/versions.ts';
import { drain, type WorkerName } from './drain.ts';
import { compareLatencies } from './latency.ts';
import { load, startProgram, type Server } from './load.ts';
import { withBench, type Bench } from './own-world.ts';
import { compare, type Setting } from './rounds.ts';

const { values: flags } = parseArgs({
  options: {
    of: { type: 'string', default: 'rivals' },
    from: { type: 'string', default: '' },
    rounds: { type: 'string', default: '3' },
    seconds: { type: 'string', default: '5' },
    json: { type: 'boolean', default: false },
  },
});
const COUNTS = [1, 2, 4];
const CONNECTIONS = [1, 64, 256];
/** Applications for each processor to work off. */
const BACKLOG = 4_000;
const plan = { rounds: Number(flags.rounds), json: flags.json };

interface Contender {
  readonly name: string;
  readonly servers: readonly Server[];
}

const serverOf = ({ url, child }: Awaited<ReturnType<Bench['start']>>): Server => ({
  url,
  pid: child.pid!,
});

async function rivals(bench: Bench): Promise<Contender[]> {
  const ours = serverOf(await bench.start('ingest'));
  // The first inserts must not all create the collection.
  await bench.client.db('bench_naive').createCollection('requests');
  const naive = await startProgram('naive-ingest.ts', {
    MONGODB_URI: bench.mongoUrl,
    REDIS_URL: `${bench.redisUrl}/2`,
    MONGODB_DATABASE: 'bench_naive',
    API_KEY: bench.key,
  });
  const bare = await startProgram('bare-fastify.ts', {});
  for (const program of [naive, bare]) bench.closeLater(() => program.stop());
  return Object.entries({ ours, naive, bare }).map(([name, server]) => ({
    name,
    servers: [server],
  }));
}

/** Another version of ours, from its own controller on. */
async function versions(bench: Bench): Promise<Contender[]> {
  const folder = await mkdtemp(join(tmpdir(), 'bench-from-'));
  bench.closeLater(() => rm(folder, { recursive: true }));
  await versionAt(flags.from, folder);
  await run('npm', ['run', '-s', 'build'], { cwd: folder });
  await bench.start('controller', folder);
  return [
    { name: flags.from, servers: [serverOf(await bench.start('ingest', folder))] },
    { name: 'ours', servers: [serverOf(await bench.start('ingest'))] },
  ];
}

async function scale(bench: Bench): Promise<Contender[]> {
  const servers: Server[] = [];
  while (servers.length < Math.max(...COUNTS)) servers.push(serverOf(await bench.start('ingest')));
  return COUNTS.map((count) => ({ name: `${count} ingest`, servers: servers.slice(0, count) }));
}

function drains(bench: Bench): Setting[] {
  const setting = (name: string, worker: WorkerName, processes: number): Setting => ({
    name,
    run: () => drain(bench, worker, { size: BACKLOG * processes, processes }),
  });
  return flags.of === 'scale'
    ? COUNTS.map((count) => setting(`${count} processor`, 'ours', count))
    : [setting('ours', 'ours', 1), setting('naive', 'naive', 1)];
}

await withBench(async (bench) => {
  await bench.start('controller');
  if (flags.of === 'latency') {
    const pair = (await rivals(bench)).filter(({ name }) => name !== 'bare');
    const contenders = pair.map(({ name, servers }) => ({ name, server: servers[0]! }));
    return compareLatencies(contenders, {
      key: bench.key,
      seconds: Number(flags.seconds),
      json: flags.json,
    });
  }
  const contendersOf = flags.from !== '' ? versions : flags.of === 'scale' ? scale : rivals;
  const contenders = await contendersOf(bench);
  for (const connections of CONNECTIONS) {
    const wanted = { key: bench.key, connections, seconds: Number(flags.seconds) };
    const settings = contenders.map(({ name, servers }) => ({
      name: `${name}, ${connections} connections`,
      // Each connection belongs to one server.
      run: () => load(servers.slice(0, connections), wanted),
    }));
    await compare('request', settings, plan);
  }
  if (flags.from === '') await compare('application', drains(bench), plan);
});
