/**
 * How long answers take at fixed rates, the same for all contenders. As with partners, a request
 * does not wait until earlier ones are answered.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { newRandom } from '../support/random.ts';
import { goProgram } from '../../tools/go-program.ts';
import { run } from '../../tools/program.ts';
import { load, type Server } from './load.ts';
import { median, milliseconds, whole, type Row } from './rows.ts';

/** Each client address stays below the limit of 300 a minute. */
const TARGETS = 20_000;
const CAPACITY_CONNECTIONS = 256;
/** Late answers must be measured, not cut. */
const ANSWER_TIMEOUT = '10s';
const NS_PER_MS = 1e6;
/** Of what the slowest contender can do. */
const SHARES = [1 / 3, 2 / 3, 0.9];
const PERCENTILES = { p50: '50th', p99: '99th' } as const;

interface Plan {
  readonly key: string;
  readonly seconds: number;
  readonly rounds: number;
}

export async function latencyRows(
  servers: Readonly<Record<string, Server>>,
  plan: Plan,
  log: (line: string) => void,
): Promise<Row[]> {
  const vegeta = await goProgram('vegeta', log);
  const folder = await mkdtemp(join(tmpdir(), 'bench-latency-'));
  try {
    let slowest = Infinity;
    for (const server of Object.values(servers)) {
      const { count, seconds } = await load(server, { ...plan, connections: CAPACITY_CONNECTIONS });
      slowest = Math.min(slowest, count / seconds);
    }
    const rows: Row[] = [];
    for (const share of SHARES) {
      const rate = Math.round(slowest * share);
      const cells: Record<string, string> = {};
      for (const [name, server] of Object.entries(servers)) {
        const reports: Report[] = [];
        while (reports.length < plan.rounds)
          reports.push(await attack(vegeta, folder, server, { ...plan, rate }));
        cells[name] = cellOf(reports);
        log(`${rate}/s, ${name}: ${cells[name]}`);
      }
      rows.push([`p50, p99 at ${whole(rate)} a second`, cells]);
    }
    return rows;
  } finally {
    await rm(folder, { recursive: true });
  }
}

interface Report {
  readonly requests: number;
  readonly latencies: Readonly<Record<(typeof PERCENTILES)[keyof typeof PERCENTILES], number>>;
  readonly status_codes: Readonly<Record<string, number>>;
}

/** Medians, and how many of all requests were not accepted, if any. */
function cellOf(reports: readonly Report[]): string {
  const times = Object.values(PERCENTILES).map((percentile) =>
    milliseconds(median(reports.map(({ latencies }) => latencies[percentile] / NS_PER_MS))),
  );
  const all = reports.reduce((sum, { requests }) => sum + requests, 0);
  const accepted = reports.reduce((sum, one) => sum + (one.status_codes['202'] ?? 0), 0);
  const lost = all === accepted ? '' : ` (${all - accepted} of ${all} not accepted)`;
  return `${times.join(', ')}${lost}`;
}

async function attack(
  vegeta: string,
  folder: string,
  { url }: Server,
  plan: { readonly key: string; readonly rate: number; readonly seconds: number },
): Promise<Report> {
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
  return JSON.parse(out) as Report;
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
