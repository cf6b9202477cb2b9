/**
 * `make drill`: every fault, and whether exactly the alert that is meant for it fires. `node
 * test/drill/run.ts --help`.
 */
import { writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { paint, table } from '../../internal/platform/terminal.ts';
import { drill, type Row } from './drill.ts';

const FOLDER = fileURLToPath(new URL('../../.run/drill/', import.meta.url));
const DEFAULT_SEED = 1;
const INTERRUPTED = 130;

const HELP = `node test/drill/run.ts [--faults NAME,NAME] [--seed N] [--json FILE]

Starts stores, the service and Prometheus with the chart's alert rules, their windows shortened to seconds (test/drill/plan.ts),
and injects each fault under load: exactly the alerts meant for it must fire, and be over after it.
`;

const { values } = parseArgs({
  options: {
    faults: { type: 'string' },
    seed: { type: 'string' },
    json: { type: 'string' },
    help: { type: 'boolean' },
  },
});

function cells({ fault, fired, resolvedAfter, missing, unexpected, expected }: Row): string[] {
  const times = Object.entries(fired).map(([alert, at]) => `${short(alert)} ${at.toFixed(0)} s`);
  const verdict = [
    ...missing.map((alert) => `missing: ${short(alert)}`),
    ...unexpected.map((alert) => `not meant: ${short(alert)}`),
    ...(resolvedAfter === undefined ? ['not over'] : []),
  ];
  return [
    fault,
    expected.map(short).join(', ') || 'none',
    times.join(', ') || '-',
    resolvedAfter === undefined ? '-' : `${resolvedAfter.toFixed(0)} s`,
    verdict.join('; ') || 'ok',
  ];
}

const short = (alert: string): string => alert.replace('PartnerIngest', '');
const isWell = ({ missing, unexpected, resolvedAfter }: Row): boolean =>
  missing.length + unexpected.length === 0 && resolvedAfter !== undefined;

async function main(): Promise<number> {
  if (values.help === true) {
    console.log(HELP);
    return 0;
  }
  const stop = new AbortController();
  for (const name of ['SIGINT', 'SIGTERM'] as const) {
    process.on(name, () => {
      if (stop.signal.aborted) process.exit(INTERRUPTED);
      stop.abort();
    });
  }
  const startedAt = performance.now();
  const log = (line: string): void =>
    console.error(`${((performance.now() - startedAt) / 1_000).toFixed(1).padStart(6)} s  ${line}`);
  // An empty value is none, so that make can hand on what was not given.
  const only = (values.faults ?? '') === '' ? undefined : values.faults?.split(',');
  const rows = await drill({
    folder: FOLDER,
    seed: Number(values.seed ?? '') || DEFAULT_SEED,
    ...(only === undefined ? {} : { only }),
    signal: stop.signal,
    log,
    onRow: (row) => log(`  ${cells(row).slice(2).join(' | ')}`),
  });
  if (stop.signal.aborted) return INTERRUPTED;
  console.log(
    table([['fault', 'meant', 'fired after', 'over after', 'verdict'], ...rows.map(cells)]),
  );
  if ((values.json ?? '') !== '')
    await writeFile(values.json ?? '', `${JSON.stringify(rows, null, 2)}\n`);
  const well = rows.length > 0 && rows.every(isWell);
  console.log(
    paint(
      well ? 'green' : 'red',
      well ? `${rows.length} faults, each with its alert` : 'not as meant',
    ),
  );
  return well ? 0 : 1;
}

process.exitCode = await main().catch((error: unknown) => {
  console.error(error instanceof Error ? error.message : error);
  return 1;
});
