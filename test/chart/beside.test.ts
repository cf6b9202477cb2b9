/** Two installations beside each other share no object, whatever their releases are called. */
import { expect, test } from '@jest/globals';
import { cpSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import {
  CHART,
  evaluation,
  everything,
  helm,
  objectsOf,
  one as theOne,
  podsOf,
  render,
  type Json,
  type Rendered,
} from '../support/chart.ts';
import { folderOfFile } from '../support/folder.ts';

const folder = folderOfFile();
const LONG = 'capital-applications-of-the-northern-region';
const { networkPolicy } = everything;

/** What a cluster, or Grafana for all releases, may hold once. */
const idsOf = (objects: readonly Rendered[]): string[] =>
  objects.flatMap(({ kind, metadata, ...object }) => [
    `${kind} ${metadata.namespace}/${metadata.name}`,
    ...Object.entries((object['data'] ?? {}) as Record<string, string>).flatMap(([file, text]) => {
      const { uid, title } = JSON.parse(text) as Json;
      return [`file ${file}`, `uid ${uid}`, `title ${title}`];
    }),
  ]);

/** The pods that a selector of `one` would also find in `other`. */
const foundBy = (one: readonly Rendered[], other: readonly Rendered[]): string[] => {
  const selectors = one.flatMap(({ kind, ...object }) => {
    const { selector, podSelector } = (object['spec'] ?? {}) as Json;
    const labels = kind === 'Service' ? selector : (podSelector ?? selector)?.matchLabels;
    return labels === undefined || kind === 'ServiceMonitor' ? [] : [Object.entries(labels)];
  });
  return podsOf(other).flatMap(({ owner, metadata }) =>
    selectors.some((selector) =>
      selector.every(([label, value]) => metadata['labels'][label] === value),
    )
      ? [owner]
      : [],
  );
};

const of = (release: string, namespace: string, values: Json = {}): Promise<Rendered[]> =>
  render({ ...evaluation, networkPolicy, ...values, metrics }, { release, namespace });
const metrics = { podMonitor: { enabled: true }, prometheusRule: { enabled: true } };
const shared = { partnerKeys: { namespace: 'shared', createNamespace: false } };

const twice: readonly [string, () => Promise<readonly [Rendered[], Rendered[]]>][] = [
  ['one release name', async () => [await of('intake', 'a'), await of('intake', 'b')]],
  ['and one named after it', async () => [await of('a', 'a'), await of('a', 'b')]],
  ['names that join alike', async () => [await of('x', 'a-b'), await of('x-partner-ingest', 'a')]],
  ['a hyphen in the namespace', async () => [await of('x', 'a--b'), await of('x', 'a')]],
  ['one namespace of keys', async () => [await of('x', 'a', shared), await of('x', 'b', shared)]],
  [
    'long names in one namespace',
    async () => [await of(`${LONG}-1`, 'a'), await of(`${LONG}-2`, 'a')],
  ],
  [
    'long names of namespaces',
    async () => {
      const [one, other] = ['1', '2'].map((end) => of('x', `${'n'.repeat(61)}-${end}`));
      return [await one!, await other!];
    },
  ],
];
test.each(twice)('two releases collide in nothing: %s', async (_, made) => {
  const [one, other] = await made();
  const ids = [...idsOf(one), ...idsOf(other)];
  expect(ids.length).toBeGreaterThan(60);
  expect(ids.filter((id, index) => ids.indexOf(id) !== index)).toEqual([]);
  const [here, there] = [one, other].map((all) => theOne(all, 'Deployment', '-ingest').metadata);
  if (here?.namespace === there?.namespace)
    expect([foundBy(one, other), foundBy(other, one)]).toEqual([[], []]);
  for (const { metadata } of [...one, ...other]) {
    if (metadata.namespace !== 'shared')
      expect([metadata.name, metadata.name.length <= 63]).toEqual([metadata.name, true]);
  }
});

test.each([
  ['of the release', 'eu-us', ['eu', 'us']],
  ['alike until they are cut', 'shop', [`${LONG}-1`, `${LONG}-2`]],
  ['one of which holds the name of the chart', 'partner-ingest', ['partner-ingest', 'ingest']],
])('two aliases below one parent collide in nothing: %s', async (what, release, aliases) => {
  const parent = join(folder, what.replaceAll(' ', '-'));
  cpSync(CHART, join(parent, 'charts/partner-ingest'), { recursive: true });
  const dependencies = aliases.map((alias) => ({
    name: 'partner-ingest',
    version: '>=0',
    ...(alias === 'partner-ingest' ? {} : { alias }),
  }));
  const chart = { apiVersion: 'v2', name: 'parent', version: '1.0.0', dependencies };
  writeFileSync(join(parent, 'Chart.yaml'), JSON.stringify(chart));
  const values = Object.fromEntries(aliases.map((alias) => [alias, evaluation]));
  const { code, out, err } = await helm(
    ['template', release, parent, '-n', release, '-f', '-'],
    values,
  );
  expect({ code, err }).toEqual({ code: 0, err: '' });
  const objects = objectsOf(out);
  const ids = idsOf(objects);
  expect(ids.length).toBeGreaterThan(60);
  expect(ids.filter((id, index) => ids.indexOf(id) !== index)).toEqual([]);
  // Each selector finds the pods of one.
  for (const object of objects) expect(foundBy([object], objects).length).toBeLessThanOrEqual(1);
});

test('names that never collided are what they were', async () => {
  const made = async (release: string, namespace: string): Promise<string[]> =>
    idsOf(await of(release, namespace)).filter((id) =>
      /Namespace|Role |Deployment .*-ingest$|uid/.test(id),
    );
  const full = (prefix: string, namespace: string): string[] => [
    `Namespace undefined/${prefix}-keys`,
    `Role ${prefix}-keys/${prefix}-controller`,
    `Deployment ${namespace}/${prefix}-ingest`,
  ];
  expect(await made('partner-ingest', 'partner-ingest')).toEqual(
    expect.arrayContaining([...full('partner-ingest', 'partner-ingest'), 'uid partner-ingest']),
  );
  expect(await made('try', 'try')).toEqual(
    expect.arrayContaining(full('try-partner-ingest', 'try')),
  );
});
