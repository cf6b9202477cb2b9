/**
 * `make profile`: where the processor time of ingest under load goes (OF=processor: of the
 * processor in a drain), by stage.
 *
 * A function counts for the innermost stage that it or one of its callers belongs to, so Node's own
 * functions count for who called them. What no stage called is Node's: the HTTP parser, sockets,
 * timers.
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import type { Profiler } from 'node:inspector';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { table } from '../../internal/platform/terminal.ts';
import { withBench, type Bench } from './own-world.ts';
import { drain } from './drain.ts';
import { imageEnvironment } from '../support/image.ts';
import { load } from './load.ts';
import type { Sample } from './rounds.ts';

const SAMPLE_EVERY_US = 250;
const US_PER_SECOND = 1e6;
const ENDS_WITHIN_SECONDS = 1;

/** A file belongs to the first stage whose pattern matches its path. */
const STAGES = [
  ['request ids', /typeid|uuidv7|platform\/ids/],
  ['addresses', /ipaddr\.js|proxy-addr|forwarded|client-address/],
  ['hints', /bullmq|msgpackr|internal\/queue\//],
  [
    'limiter, Redis client',
    /rate-limit|limit-policy|local-counts|ioredis|redis-parser|cluster-key-slot|platform\/redis/,
  ],
  ['e-mail', /nodemailer|internal\/mail\//],
  ['database driver', /node_modules\/(mongodb|bson)/],
  [
    'records and commit',
    /internal\/(submission|account)\/|platform\/(mongo|dispatcher|batcher|deadline)/,
  ],
  ['metrics', /prom-client|internal\/telemetry\//],
  ['Fastify', /node_modules\/(fastify|find-my-way|avvio|@fastify|fast-)/],
  ['our handlers', /\/(internal|cmd)\//],
  ['other packages', /node_modules\//],
] as const;

const { values: flags } = parseArgs({
  options: {
    of: { type: 'string', default: 'ingest' },
    connections: { type: 'string', default: '64,256' },
    seconds: { type: 'string', default: '5' },
    size: { type: 'string', default: '10000' },
  },
});

const stageOf = ({ functionName, url }: Profiler.ProfileNode['callFrame']): string | undefined => {
  if (functionName === '(garbage collector)') return 'collector';
  return STAGES.find(([, path]) => path.test(url))?.[0];
};

/** Busy microseconds by stage, largest first. */
function timesOf(profile: Profiler.Profile, lastSeconds: number): (readonly [string, number])[] {
  const { nodes, samples = [], timeDeltas = [], startTime, endTime } = profile;
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const stages = new Map<number, string>();
  const visit = ({ id, callFrame, children = [] }: Profiler.ProfileNode, callers: string): void => {
    const stage = stageOf(callFrame) ?? callers;
    if (callFrame.functionName !== '(idle)') stages.set(id, stage);
    for (const child of children) visit(byId.get(child)!, stage);
  };
  visit(nodes[0]!, 'Node: HTTP, sockets, timers');
  let at = startTime;
  const sums = new Map<string, number>();
  for (const [index, id] of samples.entries()) {
    const [stage, took] = [stages.get(id), timeDeltas[index] ?? 0];
    at += took;
    if (stage !== undefined && at > endTime - lastSeconds * US_PER_SECOND)
      sums.set(stage, (sums.get(stage) ?? 0) + took);
  }
  return [...sums].toSorted(([, one], [, other]) => other - one);
}

function show(title: string, unit: string, { count, seconds }: Sample): void {
  const [newest] = readdirSync(folder).toSorted().toReversed();
  const text = readFileSync(join(folder, newest!), 'utf8');
  const stages = timesOf(JSON.parse(text) as Profiler.Profile, seconds + ENDS_WITHIN_SECONDS);
  const all = stages.reduce((sum, [, time]) => sum + time, 0);
  const rows = [...stages, ['all', all] as const].map(([name, time]) => [
    name,
    `${((100 * time) / all).toFixed(1)} %`,
    `${(time / count).toFixed(1)} µs`,
  ]);
  console.log(`\n${table([[title, 'share', `one ${unit}`], ...rows])}`);
}

const folder = mkdtempSync(join(tmpdir(), 'profile-'));
/** The image's settings, because they are shipped. */
const PROFILED = {
  NODE_OPTIONS: `${imageEnvironment()['NODE_OPTIONS'] ?? ''} --cpu-prof --cpu-prof-interval=${SAMPLE_EVERY_US} --cpu-prof-dir=${folder}`,
};

async function profileIngest(bench: Bench): Promise<void> {
  await bench.start('controller');
  for (const connections of flags.connections.split(',').map(Number)) {
    const ingest = await bench.start('ingest', PROFILED);
    const server = { url: ingest.url, pid: ingest.child.pid! };
    const plan = { key: bench.key, connections };
    await load([server], { ...plan, seconds: 3 });
    const sample = await load([server], { ...plan, seconds: Number(flags.seconds) });
    await ingest.stop();
    show(`ingest, ${connections} connections`, 'request', sample);
  }
}

async function profileProcessor(bench: Bench): Promise<void> {
  const size = Number(flags.size);
  const sample = await drain(bench, 'ours', { size, processes: 1, environment: PROFILED });
  show(`processor, ${size} applications`, 'application', sample);
}

await withBench(flags.of === 'processor' ? profileProcessor : profileIngest);
rmSync(folder, { recursive: true });
