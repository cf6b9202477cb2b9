/**
 * `make bench`: how fast we accept and how fast we work off, against straightforward
 * implementations.
 *
 * Only the ratios of one run mean anything: the machine's speed varies, and load generator,
 * database and server share it.
 */
import { writeFile } from 'node:fs/promises';
import { parseArgs, styleText } from 'node:util';
import { MongoClient } from 'mongodb';
import { startMongo, startRedis } from '../../deploy/local/stores.ts';
import { loadContenders } from './contenders.ts';
import { drain, workers, type DrainRound } from './drain.ts';
import { checkLoadGenerator } from './load.ts';
import { contenderTable, drainTable, summarise } from './report.ts';

const { values: flags } = parseArgs({
  options: {
    rounds: { type: 'string', default: '3' },
    seconds: { type: 'string', default: '5' },
    connections: { type: 'string', default: '1,64,256' },
    drain: { type: 'string', default: '4000' },
    json: { type: 'string' },
    help: { type: 'boolean', default: false },
  },
});
const HELP = `usage: make bench [BENCH="--rounds 3 --seconds 5 --connections 1,64,256 --drain 4000 --json FILE"]
  --connections ''  leaves the contenders out; --drain 0 leaves the workers out`;

const log = (line: string): void => console.error(styleText('dim', line));

async function main(): Promise<number> {
  await checkLoadGenerator();
  const [rounds, seconds, size] = [
    Number(flags.rounds),
    Number(flags.seconds),
    Number(flags.drain),
  ];
  const connections = flags.connections.split(',').filter(Boolean).map(Number);
  const opened: (() => Promise<unknown>)[] = [];
  try {
    const [mongo, redis] = await Promise.all([startMongo({ log }), startRedis({ log })]);
    opened.push(
      () => mongo.stop(),
      () => redis.stop(),
    );
    const client = new MongoClient(mongo.url);
    opened.push(() => client.close());
    const stores = { mongo: { url: mongo.url, client }, redisUrl: redis.url };

    const contenders = await loadContenders(stores, { connections, rounds, seconds }, (round) =>
      log(
        `${round.connections} connections, round ${round.round}, ${round.contender}: ${Math.round(round.requests / round.seconds)}/s`,
      ),
    );
    const drains: DrainRound[] = [];
    for (let round = 1; round <= (size > 0 ? rounds : 0); round += 1) {
      for (const worker of workers) {
        const result = await drain(worker, {
          size,
          mongo: stores.mongo,
          redisUrl: `${redis.url}/3`,
        });
        drains.push({ worker, round, ...result });
        log(`drain of ${size}, round ${round}, ${worker}: ${Math.round(result.perSecond)}/s`);
      }
    }

    const summary = summarise(contenders.rounds, drains);
    if (connections.length > 0) console.log(contenderTable(summary));
    if (size > 0) console.log(`\n${drainTable(summary)}`);
    const { accepted, stored, badStatus } = contenders.agreement;
    const drained = drains.every((round) => round.completed === size && round.mails === size);
    const agrees = contenders.agreement.agrees && drained;
    console.log(
      `\nours: ${accepted} answers 202, ${stored} records stored, ${badStatus} answers other than 2xx; ` +
        `every drained application completed and mailed once: ${drained ? 'yes' : 'NO'}: ` +
        (agrees ? styleText('green', 'they agree') : styleText('red', 'THEY DO NOT AGREE')),
    );
    if (flags.json !== undefined) {
      const everything = {
        summary,
        rounds: contenders.rounds,
        agreement: contenders.agreement,
        drains,
      };
      await writeFile(flags.json, `${JSON.stringify(everything, null, 2)}\n`);
    }
    return agrees ? 0 : 1;
  } finally {
    for (const close of opened.toReversed())
      await close().catch((error: unknown) => console.error(error));
  }
}

if (flags.help) console.log(HELP);
else {
  try {
    process.exitCode = await main();
  } catch (error) {
    console.error(styleText('red', error instanceof Error ? error.message : String(error)));
    process.exitCode = 1;
  }
}
