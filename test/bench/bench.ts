/**
 * `make bench`: how fast we accept and how fast we work off, against straightforward
 * implementations or, with `FROM="commit commit"`, against kept builds. `OF=accept` and `OF=drain`
 * are one of both. `OF=scale`: what 1, 2 and 4 processes of ours cost each part. `OF=latency`: how
 * long answers take at fixed rates.
 *
 * Only ratios and processor times of one run mean anything: the machine's speed varies, and load
 * generator, database and server share it.
 */
import { parseArgs, styleText } from 'node:util';
import { drain, naiveWorker, processors, startNaive, startReady, type Worker } from './drain.ts';
import { keptBuild } from './kept-build.ts';
import { compareLatencies } from './latency.ts';
import { checkLoadGenerator, load, startProgram, type Server } from './load.ts';
import { withBench, type Bench, type Owner } from './own-world.ts';
import { compare, type Setting } from './rounds.ts';

const { values: flags } = parseArgs({
  options: {
    of: { type: 'string', default: 'all' },
    from: { type: 'string', default: '' },
    rounds: { type: 'string', default: '3' },
    seconds: { type: 'string', default: '5' },
    /** Applications for each processor to work off. */
    backlog: { type: 'string', default: '4000' },
    json: { type: 'boolean', default: false },
  },
});
const OF = ['all', 'accept', 'drain', 'scale', 'latency'];
const COUNTS = [1, 2, 4];
const CONNECTIONS = [1, 64, 256];
const plan = { rounds: Number(flags.rounds), json: flags.json };
const log = (line: string): void => console.error(styleText('dim', line));

interface Contender {
  readonly name: string;
  readonly servers: readonly Server[];
}

/** The ingest of the working tree and of each kept build, or the naive one beside ours. */
async function rivals(bench: Bench, builds: readonly Owner[]): Promise<Contender[]> {
  const contenders: Contender[] = [];
  for (const build of builds) {
    await startReady(bench, 'controller', build);
    contenders.push({ name: build.name, servers: [await startReady(bench, 'ingest', build)] });
  }
  if (builds.length > 1) return contenders;
  const naive = await startNaive(bench, 'naive-ingest.ts', bench.newOwner('naive'));
  return [...contenders, { name: 'naive', servers: [naive] }];
}

async function scale(bench: Bench, ours: Owner): Promise<Contender[]> {
  await startReady(bench, 'controller', ours);
  const servers: Server[] = [];
  while (servers.length < Math.max(...COUNTS))
    servers.push(await startReady(bench, 'ingest', ours));
  return COUNTS.map((count) => ({ name: `${count} ingest`, servers: servers.slice(0, count) }));
}

async function compareAccepts(bench: Bench, contenders: readonly Contender[]): Promise<void> {
  const bare = await startProgram('bare-fastify.ts', {});
  bench.closeLater(() => bare.stop());
  for (const connections of CONNECTIONS) {
    const wanted = { key: bench.key, connections, seconds: Number(flags.seconds) };
    const settings = [...contenders, { name: 'bare', servers: [bare] }].map(
      ({ name, servers }) => ({
        name: `${name}, ${connections} connections`,
        // Each connection belongs to one server.
        run: () => load(servers.slice(0, connections), wanted),
        bare: name === 'bare',
      }),
    );
    await compare('request', settings, plan);
  }
}

async function compareDrains(bench: Bench, builds: readonly Owner[]): Promise<void> {
  const setting = (name: string, worker: Worker, processes = 1): Setting => ({
    name,
    run: () => drain(bench, worker, Number(flags.backlog) * processes),
  });
  const ofBuilds = builds.map((build) => setting(build.name, processors(bench, build)));
  const ofCounts = COUNTS.map((count) =>
    setting(`${count} processor`, processors(bench, builds[0]!, count), count),
  );
  const naive = setting('naive', naiveWorker(bench, bench.newOwner('naive')));
  const withNaive = builds.length > 1 ? ofBuilds : [...ofBuilds, naive];
  await compare('application', flags.of === 'scale' ? ofCounts : withNaive, plan);
}

await withBench(async (bench) => {
  if (!OF.includes(flags.of)) throw new Error(`OF is one of ${OF.join(', ')}`);
  if (flags.of !== 'drain') await checkLoadGenerator();
  const builds = [bench.newOwner('ours')];
  for (const commit of flags.from.split(/\s+/).filter(Boolean))
    builds.push(bench.newOwner(commit, await keptBuild(commit, log)));
  // Before the accepts, whose services go on running.
  if (['all', 'drain', 'scale'].includes(flags.of)) await compareDrains(bench, builds);
  if (flags.of === 'drain') return;
  const contenders = await (flags.of === 'scale'
    ? scale(bench, builds[0]!)
    : rivals(bench, builds));
  if (flags.of !== 'latency') return compareAccepts(bench, contenders);
  await compareLatencies(
    contenders.map(({ name, servers }) => ({ name, server: servers[0]! })),
    { key: bench.key, seconds: Number(flags.seconds), json: flags.json },
  );
});
