/** Checks what every render of the chart must have: security, names, probes and stable output. */
import { createServer } from 'node:http';
import { describe, expect, test } from '@jest/globals';
import { cpSync, existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { run } from '../../tools/program.ts';
import { ROOT } from '../../tools/root.ts';
import { DRAIN_DEADLINE_MS } from '../../internal/platform/run-process.ts';
import { PROCESSOR_DRAIN_MS } from '../../internal/processor/line.ts';
import {
  CHART,
  chartYaml,
  evaluation,
  everything,
  examples,
  helm,
  manifest,
  objectsOf,
  one,
  podsOf,
  production,
  render,
  renderExample,
  type Json,
  type Rendered,
} from '../support/chart.ts';
import { folderOfFile } from '../support/folder.ts';
import { listen } from '../support/listen.ts';

const folder = folderOfFile();
const COMPONENTS = ['ingest', 'processor', 'controller'];
/** The only look-ups: an upgrade keeps what the cluster has, names and the number of pods. */
const ASKED = /lookup "apps\/v1" "Deployment" |\(lookup "v1" \.kind "" \.name\)/g;
const rendered = { evaluation, production, everything };

/** The controller reads the partners' Secrets and tells what is wrong with one; nothing else. */
const RIGHTS: readonly Json[] = [
  { apiGroups: [''], resources: ['secrets'], verbs: ['get', 'list', 'watch'] },
  { apiGroups: [''], resources: ['events'], verbs: ['create'] },
];
/** Kinds of volumes that `restricted` of the Pod Security Standards allows. */
const VOLUMES = new Set(
  'configMap csi downwardAPI emptyDir ephemeral persistentVolumeClaim projected secret'.split(' '),
);

/** What a container must have, and no more. */
const RESTRICTED = {
  allowPrivilegeEscalation: false,
  capabilities: { drop: ['ALL'] },
  readOnlyRootFilesystem: true,
};

describe('the chart', () => {
  const forTools = readdirSync(`${CHART}/ci`).map((name) => `${CHART}/ci/${name}`);
  test.each<[string, Json, string]>([
    ['nothing', {}, '-'],
    ...Object.entries(rendered).map(([name, values]): [string, Json, string] => [
      name,
      values,
      '-',
    ]),
    ...forTools.map((file): [string, Json, string] => [file, {}, file]),
  ])('helm lint --strict accepts %s', async (name, values, file) => {
    // chart-testing finds only these names.
    expect(file).toMatch(/^-$|-values\.yaml$/);
    const { code, out, err } = await helm(['lint', '--strict', CHART, '-f', file], values);
    expect([code, out]).toEqual([0, expect.stringContaining('0 chart(s) failed')]);
    // Without values the message names what is missing.
    if (name !== 'nothing') expect(err).toBe('');
    // Lint reports a missing icon as INFO.
    expect(out).not.toContain('[INFO]');
  });

  test('the notes of a first try send a live application, and show its e-mail', async () => {
    const args = ['install', 'try', CHART, '-n', 'try', '--dry-run=client', '-f', '-'];
    const { out } = await helm(args, evaluation);
    const scripts = [...out.matchAll(/node -e '([^']+)'/g)].map(([, script = '']) => script);
    const asked: string[] = [];
    const server = createServer((request, response) => {
      asked.push(`${request.method} ${request.url} ${request.headers.authorization}`);
      response.end(request.method === 'POST' ? '{"message":"ok"}' : '[{"text":"Welcome"}]');
    });
    const url = `http://127.0.0.1:${await listen(server)}`;
    const told: string[] = [];
    try {
      for (const script of scripts)
        told.push((await run(process.execPath, ['-e', script.replace(/http:\/\/[^/]+/, url)])).out);
    } finally {
      server.close();
    }
    expect(told).toEqual(['{"message":"ok"}\n', 'Welcome\n']);
    expect(asked).toEqual([
      'POST /api/v1/capital/ingest Bearer pik_evaluation_only_not_for_production',
      'GET /email undefined',
    ]);
  });

  test.each(examples)('the example %s renders, and begins with what it needs', async (name) => {
    expect((await renderExample(name, {}, 'x')).length).toBeGreaterThan(10);
    expect(readFileSync(`${ROOT}deploy/examples/${name}`, 'utf8')).toMatch(/^#.*Before it: /m);
  });

  test('the External Secrets make the Secrets that the other examples have', () => {
    const made = manifest('deploy/examples/external-secrets.yaml').map(({ metadata, spec }) => ({
      name: metadata.name,
      meant: spec.target?.template.metadata,
      keys: spec.data.map(({ secretKey }: Json) => secretKey),
    }));
    const given = ['secrets', 'partner-key'].flatMap((file) =>
      manifest(`deploy/examples/${file}.yaml`).map((secret) => {
        const { name, labels, annotations } = secret.metadata;
        return {
          name,
          meant: labels && { labels, annotations },
          keys: Object.keys(secret['stringData'] as object),
        };
      }),
    );
    expect(made).toEqual(given);
  });

  test('the smallest production values need no operator, and a hard spread counts only usable nodes', async () => {
    const objects = await renderExample('production.values.yaml', {}, 'x');
    // Kinds that every API server has.
    expect(
      objects
        .map(({ apiVersion }) => apiVersion)
        .filter((version) => /\..*(?<!k8s\.io)\/|gateway/.test(version)),
    ).toEqual([]);
    for (const { owner, spec } of podsOf(objects)) {
      expect([owner, spec['priorityClassName']]).toEqual([owner, undefined]);
      for (const spread of (spec['topologySpreadConstraints'] ?? []) as Json[]) {
        if (spread['whenUnsatisfiable'] === 'DoNotSchedule')
          expect(spread['nodeTaintsPolicy']).toBe('Honor');
      }
    }
  });

  test('no template makes random values, and only names and a number of pods are looked up in the cluster', () => {
    const templates = readdirSync(`${CHART}/templates`, {
      recursive: true,
      encoding: 'utf8',
    }).filter((name) => name.includes('.'));
    expect(templates.length).toBeGreaterThan(15);
    for (const name of templates) {
      const text = readFileSync(`${CHART}/templates/${name}`, 'utf8').replaceAll(ASKED, '');
      expect([
        name,
        /\b(rand\w+|gen(CA|SelfSigned|Signed|Private)\w*|uuidv4|now|ago|lookup|htpasswd|bcrypt|encryptAES|getHostByName)\b(?= )/.exec(
          text,
        )?.[0],
      ]).toEqual([name, undefined]);
    }
  });

  const all: readonly (readonly [string, () => Promise<readonly Rendered[]>])[] = [
    ...Object.entries(rendered).map(([name, values]) => [name, () => render(values)] as const),
    ...examples.map((name) => [name, () => renderExample(name, {}, 'demo')] as const),
  ];
  test.each(all)(
    'every pod of %s keeps to the restricted standard and says what it needs, and only the controller has rights',
    async (_, made) => {
      const objects = await made();
      const pods = podsOf(objects);
      expect(pods.length).toBeGreaterThanOrEqual(4);
      for (const { owner, spec } of pods) {
        expect({ owner, ...spec }).toMatchObject({
          automountServiceAccountToken:
            owner.startsWith('Deployment') && owner.endsWith('-controller'),
          enableServiceLinks: false,
          securityContext: { runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } },
        });
        expect(spec['securityContext'].runAsUser).toBeGreaterThan(0);
        const volumes = ((spec['volumes'] ?? []) as Json[]).flatMap(Object.keys);
        expect(volumes.filter((key) => key !== 'name' && !VOLUMES.has(key))).toEqual([]);
        expect(Object.keys(spec).filter((field) => field.startsWith('host'))).toEqual([]);
        for (const container of [...spec['containers'], ...(spec['initContainers'] ?? [])]) {
          expect({ owner, ...container }).toMatchObject({
            image: expect.stringMatching(/:(?!latest$)[^:]+$/),
            terminationMessagePolicy: 'FallbackToLogsOnError',
            resources: {
              requests: { cpu: expect.any(String), memory: expect.any(String) },
              limits: { memory: expect.any(String) },
            },
          });
          // The heap is bounded by the memory at the start. Kubernetes refuses this where nothing restarts.
          expect(container.resizePolicy).toEqual(
            spec['restartPolicy'] === 'Never'
              ? undefined
              : expect.arrayContaining([
                  { resourceName: 'memory', restartPolicy: 'RestartContainer' },
                ]),
          );
          expect(container.securityContext).toEqual(RESTRICTED);
          expect(JSON.stringify(container.ports ?? [])).not.toContain('hostPort');
        }
      }
      for (const { kind, ...object } of objects) {
        expect(kind).not.toMatch(/^ClusterRole/);
        if (kind === 'Role') expect(object['rules']).toEqual(RIGHTS);
        const account = { kind: 'ServiceAccount', name: expect.stringMatching(/-controller$/) };
        if (kind === 'RoleBinding')
          expect(object['subjects']).toEqual([expect.objectContaining(account)]);
      }
    },
  );

  test.each(Object.entries(rendered))(
    'every selector of %s is name, instance and component, and finds its pods',
    async (_, values) => {
      const objects = await render(values);
      const labels = podsOf(objects).map(
        ({ metadata }) => metadata['labels'] as Record<string, string>,
      );
      const selectors = objects.flatMap((object) => {
        const spec = (object['spec'] ?? {}) as Json;
        const selector =
          object.kind === 'Service'
            ? spec['selector']
            : (spec['podSelector'] ?? spec['selector'])?.matchLabels;
        return selector === undefined || object.kind.endsWith('Monitor')
          ? []
          : [selector as Record<string, string>];
      });
      expect(selectors.length).toBeGreaterThan(9);
      for (const selector of selectors) {
        expect(Object.keys(selector).toSorted()).toEqual([
          'app.kubernetes.io/component',
          'app.kubernetes.io/instance',
          'app.kubernetes.io/name',
        ]);
        const matching = labels.filter((label) =>
          Object.entries(selector).every(([key, value]) => label[key] === value),
        );
        expect([selector, matching.length]).toEqual([selector, 1]);
      }
    },
  );

  test('objects of one kind have different names, and all names are short enough', async () => {
    for (const release of ['x', 'partner-ingest', 'a'.repeat(53), '1.a']) {
      const objects = await render(
        {
          ...everything,
          ...evaluation,
          // An evaluation has no Ingress.
          ingress: {},
          ...Object.fromEntries(Object.keys(production).map((key) => [key, {}])),
          probe: {},
        },
        { release },
      );
      const ids = objects.map(
        ({ kind, metadata }) => `${kind} ${metadata.namespace}/${metadata.name}`,
      );
      expect(ids.filter((id, index) => ids.indexOf(id) !== index)).toEqual([]);
      for (const { kind, metadata } of objects) {
        // The pods of a StatefulSet have a label of its name and 11 more characters.
        const longest = kind === 'StatefulSet' ? 52 : 63;
        expect([metadata.name, metadata.name.length <= longest]).toEqual([metadata.name, true]);
      }
    }
  });

  test.each([
    ['partner-ingest', true],
    ['partner-ingest', false],
    ['partnerIngest', true],
  ])('as a dependency named %s its condition is %s', async (name, enabled) => {
    const parent = join(folder, `${name}-${enabled}`);
    cpSync(CHART, join(parent, 'charts/partner-ingest'), { recursive: true });
    const dependency = { name: 'partner-ingest', version: '>=0', condition: `${name}.enabled` };
    const dependencies = [{ ...dependency, ...(name === dependency.name ? {} : { alias: name }) }];
    const chart = { apiVersion: 'v2', name: 'parent', version: '1.0.0', dependencies };
    writeFileSync(join(parent, 'Chart.yaml'), JSON.stringify(chart));
    const values = { [name]: { ...evaluation, enabled }, global: { mine: true } };
    const { code, out, err } = await helm(['template', 'shop', parent, '-f', '-'], values);
    expect({ code, err }).toEqual({ code: 0, err: '' });
    const names = objectsOf(out).map(({ metadata }) => metadata.name);
    expect(names.length > 10).toBe(enabled);
    expect(names.filter((each) => !/^[a-z][a-z0-9-]*[a-z0-9]$/.test(each))).toEqual([]);
  });

  test('probes, start command and grace period are right for each process', async () => {
    const objects = await render(production);
    for (const component of [...COMPONENTS, 'console']) {
      const { spec } = one(objects, 'Deployment', `-${component}`)['spec'].template as Json;
      const container = spec['containers'][0] as Json;
      // Variables of a running pod never change.
      expect(JSON.stringify(container)).not.toContain('secretKeyRef');
      expect(container['livenessProbe'].httpGet.path).toBe('/livez');
      expect(container['startupProbe'].httpGet.path).toBe('/livez');
      expect(container['readinessProbe'].httpGet.path).toBe('/readyz');
      expect(container['args']).toEqual([`dist/cmd/${component}/main.js`]);
      expect(existsSync(`${ROOT}cmd/${component}/main.ts`)).toBe(true);
      const preStop = (container['lifecycle']?.preStop.sleep.seconds ?? 0) as number;
      expect(preStop).toBe(component === 'ingest' ? 15 : 0);
      const drain = component === 'processor' ? PROCESSOR_DRAIN_MS : DRAIN_DEADLINE_MS;
      expect(spec['terminationGracePeriodSeconds'] * 1_000).toBe(preStop * 1_000 + 5_000 + drain);
    }
  });

  test('version and licence are those of the project', () => {
    const project = JSON.parse(readFileSync(`${ROOT}package.json`, 'utf8')) as Json;
    expect(chartYaml['appVersion']).toBe(project['version']);
    expect(chartYaml['annotations']['artifacthub.io/license']).toBe(project['license']);
    expect(chartYaml).toMatchObject({
      icon: expect.stringMatching(/^data:image\/svg/),
      home: expect.any(String),
    });
    expect(chartYaml['maintainers']).toHaveLength(1);
  });
});
