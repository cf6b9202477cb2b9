/**
 * `make bench OF=scale`: accepts with 1, 2 and 4 ingest processes, a drain with 1, 2 and 4
 * processors, and the processor time of each part. Where the cores are full, more processes do not
 * raise the rate; the processor time says what more cores would do.
 */
import { writeFile } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { parseArgs, styleText } from 'node:util';
import { withBench, type Bench } from './own-world.ts';
import { drain } from './drain.ts';
import { loadTogether, type Server } from './load.ts';
import { costOf, costTable, limitTable, type Cost, type Sample } from './scale-report.ts';

const { values: flags } = parseArgs({
  options: {
    processes: { type: 'string', default: '1,2,4' },
    connections: { type: 'string', default: '64,256' },
    rounds: { type: 'string', default: '3' },
    seconds: { type: 'string', default: '5' },
    /** Applications for each processor, so that each warms up alike. */
    drain: { type: 'string', default: '4000' },
    json: { type: 'string' },
  },
});
const numbers = (list: string): number[] => list.split(',').filter(Boolean).map(Number);
const counts = numbers(flags.processes);

interface Setting {
  readonly name: string;
  run(): Promise<Sample>;
}

/** Runs every setting once in each round. The first round warms up and does not count. */
async function alternate(server: string, settings: readonly Setting[]): Promise<readonly Cost[]> {
  const samples = settings.map((): Sample[] => []);
  for (let round = 0; round <= Number(flags.rounds); round += 1) {
    for (const [index, setting] of settings.entries()) {
      const sample = await setting.run();
      if (round > 0) samples[index]!.push(sample);
      console.error(
        styleText('dim', `round ${round}, ${setting.name}: ${Math.round(sample.perSecond)}/s`),
      );
    }
  }
  return settings.map(({ name }, index) => costOf(name, server, samples[index]!));
}

async function accepts(bench: Bench): Promise<readonly Cost[]> {
  const servers: Server[] = [];
  await bench.start('controller');
  while (servers.length < Math.max(...counts)) servers.push(await bench.start('ingest'));
  const settings = numbers(flags.connections).flatMap((connections) =>
    counts.map((count) => ({
      name: `${count} ingest, ${connections} connections`,
      run: async () => {
        const plan = { key: bench.key, connections, seconds: Number(flags.seconds) };
        const result = await loadTogether(servers.slice(0, count), plan);
        if (result.badStatus > 0)
          throw new Error('answers other than 2xx, so the figures mean nothing');
        return { ...result, count: result.requests, perSecond: result.requests / result.seconds };
      },
    })),
  );
  return alternate('ingest', settings);
}

async function drains(bench: Bench, each: number): Promise<readonly Cost[]> {
  const mongo = { url: bench.mongoUrl, client: bench.client };
  const settings = counts.map((processes) => ({
    name: `${processes} processor`,
    run: async () => {
      const size = each * processes;
      const result = await drain('ours', {
        size,
        mongo,
        redisUrl: `${bench.redisUrl}/3`,
        processes,
      });
      if (result.completed !== size || result.mails !== size) {
        throw new Error(`of ${size}, ${result.completed} are completed and ${result.mails} mailed`);
      }
      return { ...result, count: result.mails };
    },
  }));
  return alternate('processor', settings);
}

await withBench(async (bench) => {
  const cores = availableParallelism();
  const each = Number(flags.drain);
  const accepted = flags.connections === '' ? [] : await accepts(bench);
  const drained = each === 0 ? [] : await drains(bench, each);
  for (const [unit, costs] of [
    ['request', accepted],
    ['application', drained],
  ] as const) {
    if (costs.length > 0)
      console.log(`\n${costTable(unit, costs)}\n\n${limitTable(unit, costs, cores)}`);
  }
  if (flags.json !== undefined)
    await writeFile(flags.json, `${JSON.stringify({ cores, accepted, drained }, null, 2)}\n`);
});
