/** /metrics of the real processes against internal/telemetry/metrics.ts. */
import { beforeAll, describe, expect, test } from '@jest/globals';
import type { ServiceName } from '../../deploy/local/processes.ts';
import { seriesOf, type Definition } from '../../internal/telemetry/definition.ts';
import { definitions } from '../../internal/telemetry/metrics.ts';
import { createProcessRegistry } from '../../internal/platform/process/registry.ts';
import { worldOf } from '../support/world.ts';

const NAMES = ['ingest', 'processor', 'controller'] as const satisfies readonly ServiceName[];

interface Series {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
}

const { world } = await worldOf([], { controller: false, documentedRights: true });
const scraped = {} as Record<ServiceName, string>;

beforeAll(async () => {
  // Ingest is ready only after the controller has synced the keys.
  const scrape = async (name: ServiceName): Promise<void> => {
    const { adminUrl } = await world.spawn(name);
    scraped[name] = await (await fetch(`${adminUrl}/metrics`)).text();
  };
  await Promise.all(NAMES.map(scrape));
});

const namesIn = (text: string): string[] =>
  [...text.matchAll(/^# TYPE (\S+)/gm)].map(([, name]) => name ?? '');
const ours = (name: string): boolean => name.startsWith('partner_ingest_');

function seriesIn(text: string): Series[] {
  return [...text.matchAll(/^(\w+)\{(.*)\} \S+$/gm)].map(([, name = '', labels = '']) => ({
    name,
    labels: Object.fromEntries(
      [...labels.matchAll(/(\w+)="([^"]*)"/g)].map(([, label, value]) => [label, value]),
    ),
  }));
}

describe.each(NAMES)('%s', (name) => {
  const defined = new Map(
    Object.values<Definition>(definitions[name]).map((one) => [one.name, one]),
  );

  test('shows exactly the defined metrics', async () => {
    expect(namesIn(scraped[name]).filter(ours).toSorted()).toEqual([...defined.keys()].toSorted());
    const runtime = await createProcessRegistry(name).getMetricsAsJSON();
    expect(namesIn(scraped[name]).filter((one) => !ours(one))).toEqual(
      runtime.map((one) => one.name),
    );
  });

  test('every counter exists from the start', () => {
    const present = new Set(seriesIn(scraped[name]).map(keyOf));
    const missing = [...defined.values()]
      .filter(({ kind }) => kind === 'counter')
      .flatMap((one) => seriesOf(one).map((labels) => keyOf({ name: one.name, labels })))
      .filter((key) => !present.has(key));
    expect(missing).toEqual([]);
  });
});

/** Identifies a series without the label of its process. */
function keyOf({ name, labels }: Series): string {
  const own = Object.entries(labels).filter(([label]) => label !== 'component');
  return name + JSON.stringify(own.toSorted(([one], [other]) => (one < other ? -1 : 1)));
}
