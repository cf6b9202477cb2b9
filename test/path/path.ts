/**
 * `make path`: the functions of ours that one POST calls, measured in real processes. `--record`
 * keeps the sums with which the test of the path compares.
 */
import { parseArgs } from 'node:util';
import { table } from '../../internal/operators/view/terminal.ts';
import { withBench } from '../bench/own-world.ts';
import { startMailCatcher } from '../support/mail-catcher.ts';
import { INSPECTED } from './inspector.ts';
import { measurePath, sumsOf, type Call } from './measure.ts';
import { record } from './recorded.ts';

const { values: flags } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    record: { type: 'boolean', default: false },
  },
});
const number = (value: number): string => String(value).padStart(9);

await withBench(async (bench) => {
  const mail = await startMailCatcher();
  bench.closeLater(() => mail.close());
  const owner = bench.newOwner('path');
  const source = { compiled: false };
  const [, ingest, processor] = await Promise.all([
    bench.start('controller', owner, {}, source),
    bench.start('ingest', owner, INSPECTED, source),
    bench.start(
      'processor',
      owner,
      {
        ...INSPECTED,
        SMTP_URL: mail.smtpUrl,
        MAIL_FROM: 'path@example.com',
        LOGIN_URL: 'https://login.example.com/',
        LINK_SECRET: 'a-secret-for-the-path-of-32-characters-or-more',
      },
      source,
    ),
  ]);
  await Promise.all([ingest.ready(), processor.ready()]);
  const requests = bench.client
    .db(owner.stores.MONGODB_DATABASE)
    .collection<{ _id: string; state: string }>('requests');
  let sent = 0;
  const path = await measurePath({
    ingest,
    processor,
    key: bench.key,
    body: () => {
      sent += 1;
      return {
        email: `path-${sent}@example.com`,
        business_name: `Path ${sent} Ltd`,
        ein: String(100_000_000 + sent),
      };
    },
    isCompleted: async (_id) => (await requests.findOne({ _id }))?.state === 'completed',
  });
  if (flags.record) await record(path);
  if (flags.json) console.log(JSON.stringify(path, undefined, 2));
  else print(Object.entries(path));
});

function print(parts: readonly (readonly [string, readonly Call[]])[]): void {
  for (const [name, calls] of parts) {
    const rows = calls.map((one) => [number(one.calls), one.name, `${one.file}:${one.line}`]);
    console.log(`\n${name}\n${table([['    calls', 'function', 'place'], ...rows])}`);
  }
  const all = ['together', parts.flatMap(([, calls]) => calls)] as const;
  const sums = [...parts, all].map(([name, calls]) => {
    const { files, functions, calls: sum } = sumsOf(calls);
    return [name, number(files), number(functions), number(sum)];
  });
  console.log(`\n${table([['', '    files', 'functions', '    calls'], ...sums])}`);
}
