/**
 * `make profile`: where the processor time of ingest under load goes (OF=processor: of the
 * processor in a drain), by stage.
 *
 * A function counts for the innermost stage that it or one of its callers belongs to, so Node's own
 * functions count for who called them. What no stage called is Node's: the HTTP parser, sockets,
 * timers.
 */
import type { Profiler } from 'node:inspector';
import { basename } from 'node:path';
import { parseArgs } from 'node:util';
import { table } from '../../internal/platform/terminal.ts';
import { withBench, type Bench } from './own-world.ts';
import { drain } from './drain.ts';
import { imageEnvironment } from '../support/image.ts';
import { load } from './load.ts';

const SAMPLE_EVERY_US = 250;
const US_PER_SECOND = 1e6;

/** The first whose pattern matches the path of a function's file has it. */
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
    /** How many of the functions that take most time are shown, too. */
    functions: { type: 'string', default: '0' },
  },
});

interface Profiled {
  readonly profile: Profiler.Profile;
  /** Requests, or applications. */
  readonly count: number;
}

/**
 * Connects to the inspector of a process that was started with `--inspect` and starts its profiler;
 * the result ends it.
 */
async function startProfiler(lines: readonly string[]): Promise<() => Promise<Profiler.Profile>> {
  const url = lines.map((line) => /Debugger listening on (ws:\S+)/.exec(line)?.[1]).find(Boolean);
  if (url === undefined) throw new Error('the process told no address of its inspector');
  const socket = new WebSocket(url);
  const replies = new Map<number, (result: unknown) => void>();
  socket.addEventListener('message', ({ data }) => {
    const { id, result } = JSON.parse(String(data)) as { id: number; result: unknown };
    replies.get(id)?.(result);
  });
  await new Promise((resolve, reject) => {
    socket.addEventListener('open', resolve);
    socket.addEventListener('error', () => reject(new Error(`no inspector at ${url}`)));
  });
  const ask = (method: string, params = {}): Promise<unknown> =>
    new Promise((resolve) => {
      const id = replies.size + 1;
      replies.set(id, resolve);
      socket.send(JSON.stringify({ id, method, params }));
    });
  await ask('Profiler.enable');
  await ask('Profiler.setSamplingInterval', { interval: SAMPLE_EVERY_US });
  await ask('Profiler.start');
  return async () => {
    const { profile } = (await ask('Profiler.stop')) as { profile: Profiler.Profile };
    socket.close();
    return profile;
  };
}

const stageOf = ({ functionName, url }: Profiler.ProfileNode['callFrame']): string | undefined => {
  if (functionName === '(garbage collector)') return 'collector';
  return STAGES.find(([, path]) => path.test(url))?.[0];
};

/**
 * Microseconds by stage and by function, the most first; without those in which the process waited.
 */
function timesOf({ nodes, samples = [], timeDeltas = [] }: Profiler.Profile) {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const named = new Map<number, { readonly stage: string; readonly name: string }>();
  const visit = ({ id, callFrame, children = [] }: Profiler.ProfileNode, callers: string): void => {
    const stage = stageOf(callFrame) ?? callers;
    const { functionName, url, lineNumber } = callFrame;
    named.set(id, {
      stage,
      name: `${functionName || 'anonymous'} ${basename(url)}:${lineNumber + 1} (${stage})`,
    });
    if (functionName === '(idle)') named.delete(id);
    for (const child of children) visit(byId.get(child)!, stage);
  };
  visit(nodes[0]!, 'Node: HTTP, sockets, timers');
  const sums = { stage: new Map<string, number>(), name: new Map<string, number>() };
  for (const [index, id] of samples.entries()) {
    const node = named.get(id);
    if (node === undefined) continue;
    for (const by of ['stage', 'name'] as const) {
      sums[by].set(node[by], (sums[by].get(node[by]) ?? 0) + (timeDeltas[index] ?? 0));
    }
  }
  const sorted = (sum: Map<string, number>) =>
    [...sum].toSorted(([, one], [, other]) => other - one);
  return { stages: sorted(sums.stage), functions: sorted(sums.name) };
}

function show(title: string, unit: string, { profile, count }: Profiled): void {
  const { stages, functions } = timesOf(profile);
  const all = stages.reduce((sum, [, time]) => sum + time, 0);
  const row = (name: string, time: number): string[] => [
    name,
    `${((100 * time) / all).toFixed(1)} %`,
    `${(time / count).toFixed(1)} µs`,
  ];
  const rows = [...stages, ...functions.slice(0, Number(flags.functions))].map(([name, time]) =>
    row(name, time),
  );
  console.log(`\n${table([[title, 'share', `a ${unit}`], ...rows, row('all', all)])}`);
  console.log(`${count} ${unit}s in ${(all / US_PER_SECOND).toFixed(1)} s of processor time`);
}

/** The image's settings, so that what is measured is what is shipped. */
const INSPECTED = {
  NODE_OPTIONS: `${imageEnvironment()['NODE_OPTIONS'] ?? ''} --inspect=127.0.0.1:0`,
};

async function profileIngest(
  bench: Bench,
  connections: readonly number[],
  seconds: number,
): Promise<void> {
  await bench.start('controller');
  const { url, pid, lines } = await bench.start('ingest', INSPECTED);
  const plan = { url, pid, key: bench.key, seconds };
  // Warms the code up.
  await load({ ...plan, connections: 64 });
  for (const number of connections) {
    const stop = await startProfiler(lines);
    const { requests: count } = await load({ ...plan, connections: number });
    show(`ingest, ${number} connections`, 'request', { profile: await stop(), count });
  }
}

async function profileProcessor(bench: Bench, size: number): Promise<void> {
  let stop: (() => Promise<Profiler.Profile>) | undefined;
  let profile: Profiler.Profile | undefined;
  await drain('ours', {
    size,
    mongo: { url: bench.mongoUrl, client: bench.client },
    redisUrl: bench.redisUrl,
    environment: INSPECTED,
    watch: {
      started: async ({ lines }) => {
        stop = await startProfiler(lines);
      },
      ending: async () => {
        profile = await stop?.();
      },
    },
  });
  show(`processor, ${size} applications`, 'application', { profile: profile!, count: size });
}

await withBench((bench) =>
  flags.of === 'processor'
    ? profileProcessor(bench, Number(flags.size))
    : profileIngest(bench, flags.connections.split(',').map(Number), Number(flags.seconds)),
);
