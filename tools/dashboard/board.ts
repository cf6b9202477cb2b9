/**
 * `make record WHAT=board`: docs/dashboard.svg, every panel of the dashboard drawn from what a real Prometheus answers to its queries.
 * Grafana itself cannot be had from package registries; places, titles, units and thresholds are those of the board.
 */
import { writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { dashboard, dashboardRows } from './dashboard.ts';
import { renderRules, ruleFile, NAMESPACE } from '../../test/chart/rules.ts';
import { filledIn } from '../../test/support/grafana.ts';
import { drawBoard, type DrawnPanel } from './draw.ts';
import { openWatchedWorld, type WatchedWorld } from '../../test/drill/watched-world.ts';

const FOLDER = fileURLToPath(new URL('../../.run/picture/', import.meta.url));
const FILE = fileURLToPath(new URL('../../docs/dashboard.svg', import.meta.url));
const PER_SECOND = 150;
const SECONDS = 150;
/** In the middle of the picture Redis is away for this long, and later MongoDB: a board that is all green shows little. */
const REDIS_AWAY_S = 12;
const MONGO_AWAY_S = 4;
const STEP_SECONDS = 2;
const SEED = 7;

async function main(): Promise<void> {
  const signal = new AbortController().signal;
  const log = (line: string): void => console.error(line);
  const rules = ruleFile(await renderRules());
  const watched = await openWatchedWorld({
    folder: FOLDER,
    rules,
    everySeconds: 1,
    perSecond: PER_SECOND,
    seed: SEED,
    signal,
    log,
  });
  try {
    log(`load for ${SECONDS} s`);
    const { world } = watched;
    const part = ((SECONDS - REDIS_AWAY_S - MONGO_AWAY_S) / 3) * 1_000;
    const from = Date.now() / 1_000;
    await world.pause(part);
    await world.redis.signal('SIGSTOP');
    await world.pause(REDIS_AWAY_S * 1_000);
    await world.redis.signal('SIGCONT');
    await world.pause(part);
    await world.mongo.signal('SIGSTOP');
    await world.pause(MONGO_AWAY_S * 1_000);
    await world.mongo.signal('SIGCONT');
    await world.pause(part);
    const panels = await ask(watched, { from, to: Date.now() / 1_000 });
    const svg = drawBoard({
      title: dashboard.title ?? '',
      subtitle: `${SECONDS} s under ${PER_SECOND} requests a second of all kinds, one scrape a second. Redis hangs for ${REDIS_AWAY_S} s, later MongoDB for ${MONGO_AWAY_S} s.`,
      rows: (dashboard.panels ?? [])
        .filter(({ type }) => type === 'row')
        .map(({ title = '', gridPos }) => ({ title, y: gridPos?.y ?? 0 })),
      panels,
    });
    await writeFile(FILE, svg);
    log(`wrote ${FILE}`);
  } finally {
    await watched.close();
  }
}

async function ask({ prometheus }: WatchedWorld, time: { from: number; to: number }): Promise<DrawnPanel[]> {
  const specs = dashboardRows.flatMap(({ panels }) => panels);
  const places = (dashboard.panels ?? []).filter(({ type }) => type !== 'row');
  const settings = { namespace: NAMESPACE, rateSeconds: 5, rangeSeconds: Math.round(time.to - time.from) };
  return Promise.all(
    specs.map(async (spec, index) => {
      const asked = spec.queries.map(async ({ ask: query, name }) => {
        const samples =
          spec.kind === 'stat'
            ? await prometheus.query(filledIn(query, settings))
            : await prometheus.queryRange(filledIn(query, settings), { ...time, stepSeconds: STEP_SECONDS });
        return samples.map(({ metric, values }) => ({
          name: name.replaceAll(/\{\{(\w+)\}\}/g, (_, label: string) => metric[label] ?? ''),
          values: values.filter(([, value]) => Number.isFinite(value)),
        }));
      });
      const place = places[index]?.gridPos;
      if (place === undefined) throw new Error(`no place for ${spec.title}`);
      return { spec, place, time, series: (await Promise.all(asked)).flat() };
    }),
  );
}

await main();
