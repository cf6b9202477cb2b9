/** /metrics of the real processes against internal/telemetry/metrics.ts. */
import { beforeAll, describe, expect, test } from '@jest/globals';
import type { ServiceName, ServiceProcess } from '../../deploy/local/processes.ts';
import { openValues, seriesOf, type Definition } from '../../internal/telemetry/definition.ts';
import { definitions } from '../../internal/telemetry/metrics.ts';
import { createProcessRegistry } from '../../internal/platform/process/registry.ts';
import { send } from '../support/http.ts';
import { eventually } from '../support/wait.ts';
import { newApplication, requestIdOf, worldOf } from '../support/world.ts';

const NAMES = ['ingest', 'processor', 'controller'] as const satisfies readonly ServiceName[];

interface Series {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
}

const { world } = await worldOf([], { controller: false, documentedRights: true });
const scraped = {} as Record<ServiceName, string>;

beforeAll(async () => {
  // Ingest is ready only after the controller has synced the keys.
  const spawned = await Promise.all(
    NAMES.map(async (name) => [name, await world.spawn(name)] as const),
  );
  const processes = Object.fromEntries(spawned) as Record<ServiceName, ServiceProcess>;

  const { url } = processes.ingest;
  const application = JSON.stringify(newApplication());
  const accepted = await send(url, { key: world.key, body: application });
  for (const body of ['[]', '{"email":"nobody"}', application])
    await send(url, { key: world.key, body });
  await send(url, { key: world.inactiveKey, body: application });
  await send(url, { body: application });
  await fetch(`${url}/elsewhere`);
  await world.recordIn('completed', requestIdOf(accepted));
  await eventually('the leader to have read the backlog', async () => {
    const read = await world.metric(
      processes.controller,
      'partner_ingest_backlog_read_timestamp_seconds',
    );
    return read > 0;
  });
  for (const name of NAMES)
    scraped[name] = await (await fetch(`${processes[name].adminUrl}/metrics`)).text();
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
    Object.values(definitions[name]).map((one) => [one.name, one as Definition]),
  );

  test('shows exactly the defined metrics', async () => {
    expect(namesIn(scraped[name]).filter(ours).toSorted()).toEqual([...defined.keys()].toSorted());
    const runtime = await createProcessRegistry(name).getMetricsAsJSON();
    expect(namesIn(scraped[name]).filter((one) => !ours(one))).toEqual(
      runtime.map((one) => one.name),
    );
  });

  test('every series has the defined labels and values', () => {
    const faults = seriesIn(scraped[name]).flatMap(
      ({ name: full, labels: { component, le, ...labels } }) => {
        if (component !== name) return [`${full} has component ${component}`];
        if (!ours(full)) return [];
        const definition =
          defined.get(full) ?? defined.get(full.replace(/_(bucket|sum|count)$/, ''));
        if (definition === undefined) return [`${full} is not defined`];
        if ((le !== undefined) !== full.endsWith('_bucket')) return [`${full} has le ${le}`];
        // Open values, such as names of partners, are unknown beforehand.
        const isOpen = (label: string): boolean => definition.labels[label] === openValues;
        const key = keyOf({ name: full, labels: without(isOpen, labels) });
        const listed = { ...definition, labels: without(isOpen, definition.labels) };
        const known = seriesOf(listed).some((one) => keyOf({ name: full, labels: one }) === key);
        return known ? [] : [`${full} has ${JSON.stringify(labels)}`];
      },
    );
    expect(faults).toEqual([]);
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

function without<T>(isLeftOut: (name: string) => boolean, all: Readonly<Record<string, T>>) {
  return Object.fromEntries(Object.entries(all).filter(([name]) => !isLeftOut(name)));
}

/** Identifies a series without the label of its process. */
function keyOf({ name, labels }: Series): string {
  const own = Object.entries(labels).filter(([label]) => label !== 'component');
  return name + JSON.stringify(own.toSorted(([one], [other]) => (one < other ? -1 : 1)));
}
