/** What each option of the chart does, seen in the objects. */
import { describe, expect, test } from '@jest/globals';
import {
  environmentOf,
  evaluation,
  everything,
  one,
  podsOf,
  production,
  readYaml,
  render,
  withValues,
  type Json,
  type Rendered,
} from '../support/chart.ts';

const COMPONENTS = ['ingest', 'processor', 'controller'];
const kinds = (objects: readonly Rendered[]): Set<string> =>
  new Set(objects.map(({ kind }) => kind));
/** The pod spec of a component or of `helm test`. */
const specOf = (objects: readonly Rendered[], component: string): Json =>
  podsOf(objects).find(({ owner }) => owner.endsWith(`-${component}`))?.spec ?? {};
const volume = (spec: Json, name: string): Json =>
  (spec['volumes'] as Json[] | undefined)?.find((each) => each['name'] === name) ?? {};
const variablesOf = (spec: Json): Json[] => spec['containers'][0].env as Json[];
/** The peers that the egress policy allows, by port. */
const reached = (objects: readonly Rendered[], component: string): Json =>
  Object.fromEntries(
    (one(objects, 'NetworkPolicy', `-${component}`)['spec'].egress as Json[]).map((rule) => [
      (rule['ports'] as Json[]).map(({ port }) => port as number).join(' '),
      rule['to'] ?? 'anywhere',
    ]),
  );
/** Of stores, DNS, collectors and pods of ours. */
const USUAL_PORTS = [9090, 53, 5353, 27_017, 6379, 6380, 26_379, 4317, 4318];

interface Case {
  readonly base: 'evaluation' | 'production' | 'everything';
  readonly set?: Json;
  readonly objects?: Readonly<Record<string, Json>>;
  readonly lacks?: Readonly<Record<string, readonly string[]>>;
  readonly absent?: readonly string[];
  readonly environment?: Readonly<Record<string, Readonly<Record<string, string | null>>>>;
  readonly egress?: Readonly<Record<string, Json>>;
  readonly opens?: readonly number[];
}
const presets = { evaluation, production, everything };
const options = readYaml('options.yaml') as Readonly<Record<string, readonly Case[]>>;

test.each(Object.entries(options))('%s', async (_name, cases) => {
  for (const { base, set = {}, objects = {}, lacks = {}, absent = [], ...more } of cases) {
    const { environment = {}, egress = {}, opens } = more;
    const rendered = await render(withValues(presets[base], set));
    const named = (name: string): Rendered => {
      const [kind = '', end] = name.split(' ');
      return one(rendered, kind, end);
    };
    for (const [name, wanted] of Object.entries(objects))
      expect(named(name)).toMatchObject(withValues({}, wanted));
    for (const [name, fields] of Object.entries(lacks))
      for (const field of fields) expect(named(name)).not.toHaveProperty(field);
    expect(absent.filter((kind) => kinds(rendered).has(kind))).toEqual([]);
    for (const [component, variables] of Object.entries(environment))
      for (const [name, value] of Object.entries(variables))
        expect(environmentOf(rendered, component)[name] ?? null).toBe(value);
    for (const [component, wanted] of Object.entries(egress))
      expect([component, reached(rendered, component)]).toEqual([component, wanted]);
    if (opens === undefined) continue;
    const ports = Object.keys(reached(rendered, 'ingest')).flatMap((all) => all.split(' '));
    expect(ports.map(Number).filter((port) => !USUAL_PORTS.includes(port))).toEqual(opens);
  }
});

describe('an option', () => {
  test('a component may have its own database user, and the others share one', async () => {
    const own = (name: string): Json => ({ mongodb: { existingSecret: name, key: `k-${name}` } });
    const secretsOf = async (values: Json): Promise<string[]> => {
      const objects = await render({ ...production, ...values });
      return COMPONENTS.map((component) => {
        const { sources } = volume(specOf(objects, component), 'secrets')['projected'] as Json;
        const { name, items } = sources[0].secret as Json;
        return `${name} ${items[0].key}`;
      });
    };
    const [shared, ...all] = ['mongodb uri', 'a k-a', 'b k-b', 'c k-c'];
    expect(await secretsOf({ ingest: own('a') })).toEqual(['a k-a', shared, shared]);
    const each = {
      ingest: own('a'),
      processor: own('b'),
      controller: own('c'),
      console: own('e'),
    };
    expect(await secretsOf({ mongodb: {}, ...each })).toEqual(all);
  });

  test('a global registry is put before each image without one', async () => {
    const images = async (values: Json): Promise<string[]> =>
      podsOf(await render(values)).flatMap(({ spec }) =>
        (spec['containers'] as Json[]).map(({ image }) => image),
      );
    const global = { imageRegistry: 'registry.example.com/mirror/' };
    const mirrored = await images({ ...evaluation, global });
    for (const image of mirrored) expect(image).toMatch(/^registry\.example\.com\/mirror\/[a-z]/);
    expect(mirrored.map((image) => image.replace(/^.*mirror\//, ''))).toEqual(
      expect.arrayContaining(['mongo:8', 'redis:8', 'maildev/maildev:3.0.0']),
    );
    // Podman and CRI-O take no short names.
    for (const image of await images(evaluation))
      expect(image).toMatch(/^(partner-ingest:|docker\.io\/(library|maildev)\/)/);
    for (const registry of ['other.example.com', 'localhost', 'other:5000']) {
      const image = { repository: `${registry}/partner-ingest`, tag: '1' };
      expect(new Set(await images({ ...production, global, image }))).toEqual(
        new Set([`${registry}/partner-ingest:1`]),
      );
    }
  });

  test.each([
    ['names', ['a', 'b']],
    ['objects', [{ name: 'a' }, { name: 'b' }]],
  ])('every pod has the pull secrets of the parent chart, given as %s', async (_, given) => {
    const global = { imagePullSecrets: given };
    const image = { pullSecrets: [{ name: 'b' }, { name: 'c' }] };
    const pods = podsOf(await render({ ...evaluation, global, image }));
    expect(pods.length).toBe(8);
    for (const { spec } of pods)
      expect(spec['imagePullSecrets']).toEqual([{ name: 'a' }, { name: 'b' }, { name: 'c' }]);
  });

  test.each([
    [{}, undefined],
    [{ storageClass: 'fast' }, 'fast'],
    [{ storageClass: '-' }, ''],
    [{ defaultStorageClass: 'usual' }, 'usual'],
  ])('the volume has the storage class of the parent chart: %j', async (global, wanted) => {
    const objects = await render({ ...evaluation, global });
    const [claim] = one(objects, 'StatefulSet', '-mongodb')['spec'].volumeClaimTemplates as Json[];
    expect(claim?.['spec'].storageClassName).toBe(wanted);
  });

  test('every pod is placed as given, and nothing of ours is merged into it', async () => {
    const labelSelector = { matchLabels: { team: 'capital' } };
    const other = { topologyKey: 'rack', maxSkew: 1, whenUnsatisfiable: 'DoNotSchedule' };
    const placed = {
      nodeSelector: { pool: 'a' },
      tolerations: [{ key: 'only', operator: 'Exists' }],
      affinity: { nodeAffinity: { requiredDuringSchedulingIgnoredDuringExecution: { a: [] } } },
      priorityClassName: 'high',
      runtimeClassName: 'gvisor',
    };
    const labels = { mine: 'yes' };
    const annotations = { 'mine.example.com/a': 'b' };
    const pods = { ...placed, labels, annotations };
    const spread = { topologySpreadConstraints: [{ ...other, labelSelector }, other] };
    const own = { affinity: { podAffinity: { a: [] } }, nodeSelector: { disk: 'ssd' } };
    const values = { ...evaluation, pods: { ...pods, ...spread }, ingest: { pod: own } };
    const all = podsOf(await render(values));
    expect(all.length).toBe(8);
    for (const { owner, spec, metadata } of all) {
      const of = owner.endsWith('-ingest') ? { ...placed, ...own } : placed;
      expect({ owner, ...spec }).toMatchObject({ owner, tolerations: of.tolerations });
      for (const [field, wanted] of Object.entries(of)) expect(spec[field]).toEqual(wanted);
      expect(metadata).toMatchObject({ labels, annotations });
      const [first, second] = (spec['topologySpreadConstraints'] ?? []) as Json[];
      if (!owner.startsWith('Deployment')) expect(first).toBeUndefined();
      else {
        expect(first).toEqual({ ...other, labelSelector });
        expect(second?.['labelSelector'].matchLabels).toMatchObject({
          'app.kubernetes.io/name': 'partner-ingest',
        });
      }
    }
  });

  const items = [{ key: 'root.pem', path: 'ca.crt' }];
  test.each<[string, Json]>([
    ['existingConfigMap', { configMap: { name: 'ca', items } }],
    // 0440 lets only the pod's group read it.
    ['existingSecret', { secret: { secretName: 'ca', items, defaultMode: 0o440 } }],
  ])('every process and helm test trust a CA bundle of %s', async (kind, source) => {
    const caBundle = { [kind]: 'ca', key: 'root.pem' };
    const pods = podsOf(await render({ ...production, caBundle }));
    expect(pods.length).toBe(5);
    for (const { spec } of pods) {
      expect(spec['containers'][0]).toMatchObject({
        env: expect.arrayContaining([
          { name: 'NODE_EXTRA_CA_CERTS', value: '/etc/partner-ingest/ca/ca.crt' },
        ]),
        volumeMounts: expect.arrayContaining([
          { name: 'ca', mountPath: '/etc/partner-ingest/ca', readOnly: true },
        ]),
      });
      expect(volume(spec, 'ca')).toEqual({ name: 'ca', ...source });
    }
  });

  test('the standing probe and `helm test` have the key of a test partner, and no database', async () => {
    const of = async (values: Json, base: Json = production): Promise<Json[]> => {
      const objects = await render({ ...base, ...values });
      return ['controller', 'test'].map((component) => {
        const spec = specOf(objects, component);
        const sources = (volume(spec, 'secrets')['projected']?.sources ?? []) as Json[];
        return {
          key: sources
            .map(({ secret }) => secret as Json)
            .find((secret) => secret['items'][0].path === 'PROBE_KEY')?.['name'],
          told: variablesOf(spec)
            .filter(({ name }) => /^(PROBE|MONGODB_URI)/.test(name as string))
            .map(({ name, value }) => `${name}=${value}`)
            .filter((told) => component === 'test' || told.startsWith('PROBE')),
        };
      });
    };
    const file = 'PROBE_KEY_FILE=/etc/partner-ingest/secrets/PROBE_KEY';
    const url = 'PROBE_URL=http://demo-partner-ingest-ingest:80/api/v1';
    const none = { key: undefined, told: [] };
    expect(await of({})).toEqual([none, none]);
    expect(await of({ probe: { existingSecret: 'a' } })).toEqual([
      { key: 'a', told: [file, url] },
      { key: 'a', told: [file] },
    ]);
    const outside = { file: '/b', url: 'https://api.example.com/api/v1' };
    expect(await of({ probe: outside, tests: { existingSecret: 'c' } })).toEqual([
      { key: undefined, told: ['PROBE_KEY_FILE=/b', `PROBE_URL=${outside.url}`] },
      { key: 'c', told: [file] },
    ]);
    expect(await of({ ingest: { statusEndpoint: false } }, evaluation)).toEqual([none, none]);
    for (const { key } of await of({}, evaluation))
      expect(key).toBe('demo-partner-ingest-evaluation');
  });

  test('a ServiceMonitor finds the admin ports although a GitOps tool changes the instance label', async () => {
    const monitor = { enabled: true, interval: '15s', labels: { release: 'prometheus' } };
    const objects = await render({ ...production, metrics: { serviceMonitor: monitor } });
    const services = one(objects, 'ServiceMonitor')['spec'] as Json;
    expect(services['endpoints']).toEqual([{ port: 'admin', path: '/metrics', interval: '15s' }]);
    const wanted = Object.entries(services['selector'].matchLabels as Record<string, string>);
    expect(wanted.map(([key]) => key)).not.toContain('app.kubernetes.io/instance');
    const found = objects.filter(
      ({ kind, metadata }) =>
        kind === 'Service' && wanted.every(([key, value]) => metadata.labels[key] === value),
    );
    expect(found.map(({ metadata }) => metadata.name)).toEqual(
      [...COMPONENTS, 'console'].map((name) => `demo-partner-ingest-${name}-metrics`),
    );
  });

  const API = 'monitoring.coreos.com/v1';
  test.each<[what: string, apiVersions: readonly string[], metrics: Json, made: readonly string[]]>(
    [
      ['a cluster without the operator', [], {}, []],
      ['one with it', ['PodMonitor', 'PrometheusRule'], {}, ['PodMonitor', 'PrometheusRule']],
      ['one with it, switched off', ['PodMonitor', 'PrometheusRule'], { enabled: false }, []],
      ['a render that is told', [], { podMonitor: { enabled: true } }, ['PodMonitor']],
      [
        'a ServiceMonitor in its place',
        ['PodMonitor', 'ServiceMonitor'],
        { serviceMonitor: { enabled: true } },
        ['ServiceMonitor'],
      ],
    ],
  )('metrics show themselves: %s', async (_, has, metrics, made) => {
    const apiVersions = has.map((kind) => `${API}/${kind}`);
    const objects = await render({ ...production, metrics }, { apiVersions });
    const ofOperator = objects.filter(({ apiVersion }) => apiVersion === API);
    expect(ofOperator.map(({ kind }) => kind)).toEqual(made);
    const on = metrics['enabled'] !== false;
    expect(objects.some(({ metadata }) => metadata.name.endsWith('-dashboard'))).toBe(on);
    for (const { owner, metadata } of podsOf(objects)) {
      if (!owner.startsWith('Deployment')) continue;
      const annotations = (metadata['annotations'] ?? {}) as Json;
      // With a monitor too, a Prometheus that follows both would scrape each pod twice.
      const isAnnotated = on && !made.some((kind) => kind.endsWith('Monitor'));
      expect([
        owner,
        annotations['prometheus.io/scrape'],
        annotations['prometheus.io/port'],
      ]).toEqual(isAnnotated ? [owner, 'true', '9090'] : [owner, undefined, undefined]);
    }
  });

  const env = [
    { name: 'LOG_LEVEL', value: 'debug' },
    { name: 'MONGODB_URI', value: 'mongodb://a' },
    { name: 'LOG_LEVEL', value: 'warn' },
  ];
  test('an entry of a list replaces the entry of the chart with its name', async () => {
    const given = {
      extraEnv: env,
      extraVolumes: [{ name: 'secrets', emptyDir: {} }],
      extraVolumeMounts: [{ name: 'mine', mountPath: '/etc/partner-ingest/secrets' }],
      annotations: { 'kubectl.kubernetes.io/default-container': 'mine' },
    };
    const objects = await render({ ...production, pods: given });
    for (const component of COMPONENTS) {
      const spec = specOf(objects, component);
      const variables = variablesOf(spec);
      const named = (name: string): Json[] =>
        variables.filter((variable) => variable['name'] === name);
      expect(named('LOG_LEVEL')).toEqual([env[2]]);
      expect([named('MONGODB_URI'), named('MONGODB_URI_FILE')]).toEqual([[env[1]], []]);
      expect(spec['volumes']).toEqual(given.extraVolumes);
      expect(spec['containers'][0].volumeMounts).toEqual(given.extraVolumeMounts);
    }
    const { metadata } = podsOf(objects)[0] ?? {};
    expect(metadata?.['annotations']).toMatchObject(given.annotations);
  });
});
