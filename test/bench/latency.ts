/**
 * `make bench OF=latency`: how long answers take at fixed rates. As with partners, a request does not
 * wait until earlier ones are answered. Each rate is a share of the server's measured capacity.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { styleText } from 'node:util';
import { table } from '../../internal/operators/view/terminal.ts';
import { newRandom } from '../support/random.ts';
import { goProgram } from '../../tools/go-program.ts';
import { run } from '../../tools/program.ts';
import { load, type Server } from './load.ts';

/** Each client address stays below the limit of 300 a minute. */
const TARGETS = 20_000;
const CAPACITY_CONNECTIONS = 256;
/** Late answers must be measured, not cut. */
const ANSWER_TIMEOUT = '10s';
const NS_PER_MS = 1e6;
const SHARES = [0.1, 0.5, 0.9, 1.2] as const;
const PERCENTILES = ['50th', '99th'] as const;

interface Contender {
  readonly name: string;
  readonly server: Server;
}

interface Measured {
  readonly name: string;
  readonly share: number;
  /** Rates in requests per second: planned, and sent by the load generator. */
  readonly perSecond: number;
  readonly sent: number;
  /** Rates in requests per second: answered 202, and the capacity of the server. */
  readonly accepted: number;
  readonly capacity: number;
  readonly statuses: Readonly<Record<string, number>>;
  /** In milliseconds, from the planned moment of each request. */
  readonly latencies: readonly number[];
  readonly longestMs: number;
}

/** Measures each contender at each share of its own capacity, and prints a table. */
export async function compareLatencies(
  contenders: readonly Contender[],
  plan: { readonly key: string; readonly seconds: number; readonly json: boolean },
): Promise<void> {
  const vegeta = await goProgram('vegeta', (line) => console.error(line));
  const folder = await mkdtemp(join(tmpdir(), 'bench-latency-'));
  try {
    const capacities = new Map<string, number>();
    for (const _round of ['warm-up', 'measured'])
      for (const { name, server } of contenders) {
        const wanted = { key: plan.key, connections: CAPACITY_CONNECTIONS, seconds: plan.seconds };
        const { count, seconds } = await load([server], wanted);
        capacities.set(name, count / seconds);
      }
    const all: Measured[] = [];
    for (const share of SHARES) {
      for (const { name, server } of contenders) {
        const capacity = capacities.get(name)!;
        const rate = Math.round(capacity * share);
        const measured = await attack(vegeta, folder, server, { ...plan, rate });
        all.push({ name, share, capacity, perSecond: rate, ...measured });
        console.error(styleText('dim', `${name} at ${rate}/s: ${JSON.stringify(measured)}`));
      }
    }
    if (plan.json) console.log(JSON.stringify({ unit: 'answer', results: all }));
    else console.log(`\n${table([HEAD, ...all.map(cellsOf)])}`);
  } finally {
    await rm(folder, { recursive: true });
  }
}

const HEAD = [
  'answers at a fixed rate',
  'of capacity',
  'sent',
  'accepted',
  ...PERCENTILES,
  'longest',
  'answers',
];

function cellsOf(one: Measured): string[] {
  return [
    one.name,
    `${Math.round(one.share * 100)} %`,
    `${Math.round(one.sent)} of ${one.perSecond}/s`,
    `${Math.round(one.accepted)}/s (${Math.round((100 * one.accepted) / one.capacity)} %)`,
    ...one.latencies.map((ms) => `${ms.toFixed(1)} ms`),
    `${one.longestMs.toFixed(0)} ms`,
    Object.entries(one.statuses)
      // vegeta writes 0 where no answer came.
      .map(([status, count]) => `${status === '0' ? 'none' : status}: ${count}`)
      .join(' '),
  ];
}

async function attack(
  vegeta: string,
  folder: string,
  { url }: Server,
  plan: { readonly key: string; readonly rate: number; readonly seconds: number },
): Promise<Pick<Measured, 'sent' | 'accepted' | 'statuses' | 'latencies' | 'longestMs'>> {
  const [targets, results] = [join(folder, 'targets.json'), join(folder, 'results.bin')];
  await writeFile(targets, targetsOf(`${url}/api/v1/capital/ingest`, plan.key));
  await run(vegeta, [
    'attack',
    '-format=json',
    `-targets=${targets}`,
    `-rate=${plan.rate}/s`,
    `-duration=${plan.seconds}s`,
    `-timeout=${ANSWER_TIMEOUT}`,
    '-max-body=0',
    `-output=${results}`,
  ]);
  const { out } = await run(vegeta, ['report', '-type=json', results]);
  const report = JSON.parse(out) as {
    readonly requests: number;
    readonly latencies: Readonly<Record<(typeof PERCENTILES)[number] | 'max', number>>;
    readonly status_codes: Readonly<Record<string, number>>;
  };
  return {
    sent: report.requests / plan.seconds,
    accepted: (report.status_codes['202'] ?? 0) / plan.seconds,
    statuses: report.status_codes,
    latencies: PERCENTILES.map((percentile) => report.latencies[percentile] / NS_PER_MS),
    longestMs: report.latencies.max / NS_PER_MS,
  };
}

function targetsOf(url: string, key: string): string {
  const random = newRandom(1);
  const lines = Array.from({ length: TARGETS }, (_, index) => {
    const ein = String(Math.floor(random.next() * 1e9)).padStart(9, '0');
    const application = {
      email: `load-${index}@example.com`,
      business_name: `Load Test ${index} Ltd`,
      ein,
    };
    const address = `11.${(index >> 16) & 255}.${(index >> 8) & 255}.${index & 255}`;
    return JSON.stringify({
      method: 'POST',
      url,
      header: {
        Authorization: [`Bearer ${key}`],
        'Content-Type': ['application/json'],
        'X-Forwarded-For': [address],
      },
      body: Buffer.from(JSON.stringify(application)).toString('base64'),
    });
  });
  return `${lines.join('\n')}\n`;
}
