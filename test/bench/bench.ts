/**
 * `make bench`: what an accept and an application cost and how long answers take, of ours beside
 * straightforward implementations or, with `FROM="commit commit"`, beside kept builds. All are
 * measured in turns in one run, because the machine's speed varies, and load generator, stores and
 * servers share it. `OF=accept|drain|latency` is a part of the table. `RECORD=1` writes it into
 * docs/sizing.md.
 */
import { parseArgs, styleText } from 'node:util';
import { table } from '../../internal/operators/view/terminal.ts';
import { git } from '../support/source-of.ts';
import { machine } from '../support/machine.ts';
import { drain, naiveWorker, processorOf, startNaive, startReady } from './drain.ts';
import { keptBuild } from './kept-build.ts';
import { latencyRows } from './latency.ts';
import { checkLoadGenerator, load, startProgram, type Server } from './load.ts';
import { withBench, type Bench, type Owner } from './own-world.ts';
import { record } from './recorded.ts';
import { acceptRows, drainRows, headOf, measureInTurns, type Row } from './rows.ts';

const { values: flags } = parseArgs({
  options: {
    of: { type: 'string', default: 'all' },
    from: { type: 'string', default: '' },
    rounds: { type: 'string', default: '3' },
    seconds: { type: 'string', default: '5' },
    /** Applications to work off. */
    backlog: { type: 'string', default: '4000' },
    json: { type: 'boolean', default: false },
    record: { type: 'boolean', default: false },
  },
});
const OF = ['all', 'accept', 'drain', 'latency'];
const CONNECTIONS = [64, 256];
const rounds = Number(flags.rounds);
const seconds = Number(flags.seconds);
const log = (line: string): void => console.error(styleText('dim', line));
const isWanted = (part: string): boolean => flags.of === 'all' || flags.of === part;

type Servers = Readonly<Record<string, Server>>;

/** The ingest of each build, or the naive one beside ours. */
async function startServers(bench: Bench, builds: readonly Owner[]): Promise<Servers> {
  const servers: Record<string, Server> = {};
  for (const build of builds) {
    await startReady(bench, 'controller', build);
    servers[build.name] = await startReady(bench, 'ingest', build);
  }
  if (builds.length === 1)
    servers['naive'] = await startNaive(bench, 'naive-ingest.ts', bench.newOwner('naive'));
  return servers;
}

async function accepts(bench: Bench, servers: Servers): Promise<Row[]> {
  const bare = await startProgram('bare-fastify.ts', {});
  bench.closeLater(() => bare.stop());
  const rows: Row[] = [];
  for (const connections of CONNECTIONS) {
    const settings = Object.entries({ ...servers, 'bare Fastify': bare }).map(([name, server]) => ({
      name,
      run: () => load(server, { key: bench.key, connections, seconds }),
    }));
    rows.push(...acceptRows(connections, await measureInTurns(settings, rounds, log)));
  }
  return rows;
}

async function drains(bench: Bench, builds: readonly Owner[]): Promise<Row[]> {
  const workers = builds.map((build) => processorOf(bench, build));
  if (builds.length === 1) workers.push(naiveWorker(bench, bench.newOwner('naive')));
  const settings = workers.map((worker) => ({
    name: worker.owner.name,
    run: () => drain(bench, worker, Number(flags.backlog)),
  }));
  return drainRows(await measureInTurns(settings, rounds, log));
}

await withBench(async (bench) => {
  if (!OF.includes(flags.of)) throw new Error(`OF is one of ${OF.join(', ')}`);
  if (flags.of !== 'drain') await checkLoadGenerator();
  const builds = [bench.newOwner('ours')];
  for (const commit of flags.from.split(/\s+/).filter(Boolean))
    builds.push(bench.newOwner(commit, await keptBuild(commit, log)));
  // Before the accepts, whose services go on running.
  const later = isWanted('drain') ? await drains(bench, builds) : [];
  const rows: Row[] = [];
  if (flags.of !== 'drain') {
    const servers = await startServers(bench, builds);
    if (isWanted('accept')) rows.push(...(await accepts(bench, servers)));
    if (isWanted('latency'))
      rows.push(...(await latencyRows(servers, { key: bench.key, seconds, rounds }, log)));
  }
  rows.push(...later);
  const commit = await git(['describe', '--always', '--dirty']);
  const medians = `medians of ${rounds} rounds (in brackets: ours divided by it).`;
  const about = `Commit ${commit}, ${machine()}:\n${medians}`;
  if (flags.json) console.log(JSON.stringify({ about, rows }));
  else print(about, rows);
  if (flags.record) await record(about, rows);
});

function print(about: string, rows: readonly Row[]): void {
  const names = headOf(rows);
  const lines = rows.map(([name, cells]) => [name, ...names.map((one) => cells[one] ?? '')]);
  console.log(`\n${about}\n${table([['', ...names], ...lines])}`);
}
