/** A real API server accepts the objects of the chart in a restricted namespace. */
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { run } from '../../tools/program.ts';
import { findKubectl } from '../e2e/cluster.ts';
import {
  CHART,
  evaluation,
  everything,
  examples,
  helm,
  manifest,
  production,
  render,
  renderExample,
  type Json,
  type Rendered,
} from '../support/chart.ts';
import { kubeconfigOfTests } from '../support/cluster.ts';

const CALL_TIMEOUT_MS = 60_000;
const RESTRICTED = {
  'pod-security.kubernetes.io/enforce': 'restricted',
  'pod-security.kubernetes.io/warn': 'restricted',
};
/** Kinds of operators in chart and examples. */
const FOREIGN_KINDS = [
  'PodMonitor.monitoring.coreos.com/v1',
  'ServiceMonitor.monitoring.coreos.com/v1',
  'PrometheusRule.monitoring.coreos.com/v1',
  'PodMonitoring.monitoring.googleapis.com/v1',
  'ScaledObject.keda.sh/v1alpha1',
  'HTTPRoute.gateway.networking.k8s.io/v1',
  'BackendTrafficPolicy.gateway.envoyproxy.io/v1alpha1',
  'HealthCheckPolicy.networking.gke.io/v1',
  'Application.argoproj.io/v1alpha1',
];

const anyOf = (type: string, more: object): object => ({
  type,
  'x-kubernetes-preserve-unknown-fields': type === 'object' ? true : undefined,
  ...more,
});
const listOf = (properties: object): object => anyOf('array', { items: mapOf(properties) });
const mapOf = (properties: object = {}): object => anyOf('object', { properties });
const text = (value: string): object => ({ type: 'string', default: value });
/** Fields that the operators' own definitions default inside lists. */
const DEFAULTED: Readonly<Record<string, object>> = {
  HTTPRoute: {
    parentRefs: listOf({ group: text('gateway.networking.k8s.io'), kind: text('Gateway') }),
    rules: listOf({
      matches: listOf({ path: mapOf({ type: text('PathPrefix'), value: text('/') }) }),
      backendRefs: listOf({
        group: text(''),
        kind: text('Service'),
        weight: { type: 'integer', default: 1 },
      }),
    }),
  },
};

/** What a GitOps tool sees as drift: it merges lists of kinds that are not Kubernetes' own whole. */
function driftOf(rendered: unknown, live: unknown, foreign: boolean, path: string): string[] {
  if (Array.isArray(rendered)) {
    const other = Array.isArray(live) ? live : [];
    if (foreign || rendered.length !== other.length)
      return isDeepStrictEqual(rendered, live) ? [] : [path];
    return rendered.flatMap((each, index) =>
      driftOf(each, other[index], foreign, `${path}[${index}]`),
    );
  }
  if (typeof rendered !== 'object' || rendered === null)
    return rendered === live ? [] : [`${path}: ${String(rendered)} is ${String(live)}`];
  // Nobody reads `stringData` back.
  const { stringData: _, ...fields } = rendered as Json;
  return Object.entries(fields).flatMap(([key, value]) =>
    driftOf(value, (live as Json | undefined)?.[key], foreign, `${path}.${key}`),
  );
}

function definitionOf(name: string): object {
  const [, kind = '', group = '', version = ''] = /^(\w+)\.(.+)\/(.+)$/.exec(name) ?? [];
  const plural = `${kind.toLowerCase().replace(/y$/, 'ie')}s`;
  const openAPIV3Schema = mapOf({ spec: mapOf(DEFAULTED[kind]) });
  return {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: {
      name: `${plural}.${group}`,
      annotations: { 'api-approved.kubernetes.io': 'unapproved, a stand-in of tests' },
    },
    spec: {
      group,
      names: { kind, plural, singular: kind.toLowerCase() },
      scope: 'Namespaced',
      versions: [{ name: version, served: true, storage: true, schema: { openAPIV3Schema } }],
    },
  };
}

const presets: Readonly<Record<string, Json>> = { evaluation, everything };

describe('an API server', () => {
  const home = `chart-${randomBytes(3).toString('hex')}`;
  const keys = `${home}-keys`;
  const partnerKeys = { namespace: keys };
  const KUBECONFIG = kubeconfigOfTests();

  async function kubectl(args: readonly string[], objects: readonly object[] = []) {
    const input = objects.map((object) => JSON.stringify(object)).join('\n');
    const program = await findKubectl(KUBECONFIG);
    const options = { input, timeoutMs: CALL_TIMEOUT_MS, env: { ...process.env, KUBECONFIG } };
    return (await run(program, args, options)).out;
  }

  beforeAll(async () => {
    const namespaces = [home, keys].map((name) => ({
      apiVersion: 'v1',
      kind: 'Namespace',
      metadata: { name, labels: RESTRICTED },
    }));
    // A cluster with the operators has the true definitions.
    const known = await kubectl(['get', 'crd', '--output=jsonpath={.items[*].spec.names.kind}']);
    const missing = FOREIGN_KINDS.filter(
      (name) => !known.split(' ').includes(name.split('.')[0] ?? ''),
    );
    await kubectl(['apply', '-f', '-'], [...namespaces, ...missing.map(definitionOf)]);
    await kubectl(['wait', '--for=condition=established', '--all', 'crd', '--timeout=30s']);
  });
  afterAll(() => kubectl(['delete', 'namespace', home, keys, '--wait=false']));

  /** Applies in a dry run of the API server; an unknown field or a warning rejects. */
  const takes = (objects: readonly Rendered[]): Promise<string> =>
    kubectl(
      ['apply', '--dry-run=server', '--validate=strict', '--warnings-as-errors', '-f', '-'],
      // The namespace of the keys exists already.
      objects.filter(({ kind }) => kind !== 'Namespace'),
    );

  test.each(Object.entries({ evaluation, production, everything }))(
    'accepts all of %s without a warning',
    async (_, values) => {
      const objects = await render({ ...values, partnerKeys }, { namespace: home });
      expect(objects.length).toBeGreaterThan(15);
      await takes(objects);
    },
  );

  test.each(examples)('accepts all of the example %s without a warning', async (name) => {
    expect(await takes(await renderExample(name, { partnerKeys }, home))).toContain('deployment');
  });

  test.each(['evaluation', 'everything', 'gateway.values.yaml'])(
    'nothing differs after an apply of %s on the server',
    async (name) => {
      const own = { partnerKeys: { ...partnerKeys, createNamespace: false } };
      const objects = name.endsWith('.yaml')
        ? await renderExample(name, own, home)
        : await render({ ...presets[name], ...own }, { release: name, namespace: home });
      const onServer = ['--server-side', '--field-manager=helm', '-f', '-'];
      await kubectl(['apply', ...onServer, '--force-conflicts'], objects);
      // Ends with 1 where something differs.
      expect(await kubectl(['diff', ...onServer], objects)).toBe('');
      const { items } = JSON.parse(await kubectl(['get', '--output=json', '-f', '-'], objects)) as {
        items: Rendered[];
      };
      expect(items).toHaveLength(objects.length);
      const drift = objects.flatMap((object, index) =>
        driftOf(
          object,
          items[index],
          FOREIGN_KINDS.some((kind) => kind.startsWith(`${object.kind}.`)),
          `${object.kind} ${object.metadata.name}`,
        ),
      );
      expect(drift).toEqual([]);
    },
  );

  test.each(['argocd-application.yaml', 'secrets.yaml', 'partner-key.yaml'])(
    'accepts %s',
    async (name) => {
      const objects = manifest(`deploy/examples/${name}`).map((object) => ({
        ...object,
        metadata: { ...object.metadata, namespace: home },
      }));
      expect(await takes(objects)).toContain('(server dry run)');
    },
  );

  test('refuses a pod with more rights, and an unknown field', async () => {
    const pods = { containerSecurityContext: { capabilities: null } };
    // An object that stands already would keep the fields that are left out here.
    const place = { release: 'careless', namespace: home };
    const careless = await render({ ...production, partnerKeys, pods }, place);
    await expect(takes(careless)).rejects.toThrow('would violate PodSecurity "restricted');
    const [right] = (await render(production, { namespace: home })).filter(
      ({ kind }) => kind === 'Deployment',
    );
    const misspelt = { ...(right as Rendered), spec: { ...right?.['spec'], replicass: 1 } };
    await expect(takes([misspelt])).rejects.toThrow('replicass');
  });

  /** Names that Helm allows and Kubernetes does not. */
  test.each<[release: string, values: Json]>([
    ['a.b', {}],
    ['1st', {}],
    ['a'.repeat(53), {}],
    ['shop', { nameOverride: 'My_App' }],
    ['shop', { fullnameOverride: `${'x'.repeat(39)}-.y` }],
  ])('accepts all of the release %s with %j', async (release, names) => {
    const values = { ...evaluation, ...names, partnerKeys };
    expect(await takes(await render(values, { release, namespace: home }))).toContain('deployment');
  });

  /** Helm 4 applies on the server; the local cluster has Helm 3. */
  const beside = join(dirname(KUBECONFIG), '../bin/helm');
  const programs: readonly (string | undefined)[] = [
    undefined,
    ...(existsSync(beside) ? [beside] : []),
  ];
  test.each(programs)('accepts lists that repeat an entry of ours, by Helm %s', async (program) => {
    const twice = ['1', '2'].map((value) => ({ name: 'LOG_LEVEL', value }));
    const given = {
      extraEnv: twice,
      extraVolumes: [{ name: 'secrets', emptyDir: {} }],
      extraVolumeMounts: [{ name: 'secrets', mountPath: '/etc/partner-ingest/secrets' }],
    };
    const named = ['twice', CHART, '--kubeconfig', KUBECONFIG, '--namespace', home, '-f', '-'];
    const values = {
      ...production,
      partnerKeys: { ...partnerKeys, createNamespace: false },
      pods: given,
    };
    for (const verb of ['install', 'upgrade']) {
      const { code, err } = await helm([verb, ...named], values, program);
      expect({ verb, code, err }).toEqual({ verb, code: 0, err: '' });
    }
    const path = '{.spec.template.spec.containers[0].env[?(@.name=="LOG_LEVEL")].value}';
    const deployment = ['--namespace', home, 'deployment', 'twice-partner-ingest-ingest'];
    expect(await kubectl(['get', ...deployment, `--output=jsonpath=${path}`])).toBe('2');
    await helm(['uninstall', ...named.filter((word) => !['-f', '-', CHART].includes(word))]);
  });

  const inHome = ['--kubeconfig', KUBECONFIG, '--namespace', home];
  /** Installs or upgrades; returns why not. */
  async function change(verb: string, release: string, values: Json): Promise<string> {
    const given = { ...production, ...values };
    const { code, err } = await helm([verb, release, CHART, ...inHome, '-f', '-'], given);
    return code === 0 ? '' : err;
  }
  const existing = { partnerKeys: { ...partnerKeys, createNamespace: false } };

  test('an autoscaler keeps its number of pods, also through a switch and a rollback', async () => {
    const to = async (release: string, verb: string, ingest: Json): Promise<void> => {
      const { logLevel = 'info', ...own } = ingest;
      expect(await change(verb, release, { ...existing, logLevel, ingest: own })).toBe('');
    };
    const deployment = (release: string): string[] => [
      '--namespace',
      home,
      'deployment',
      `${release}-partner-ingest-ingest`,
    ];
    const replicas = (release: string): Promise<string> =>
      kubectl(['get', ...deployment(release), '--output=jsonpath={.spec.replicas}']);
    // An autoscaler scales like this.
    const scale = (release: string, pods: number): Promise<string> =>
      kubectl(['scale', ...deployment(release), `--replicas=${pods}`]);
    await to('scaled', 'install', { replicaCount: 4 });
    expect(await replicas('scaled')).toBe('4');
    const autoscaling = { enabled: true, minReplicas: 3 };
    await to('scaled', 'upgrade', { replicaCount: 4, autoscaling });
    expect(await replicas('scaled')).toBe('4');
    await scale('scaled', 7);
    await to('scaled', 'upgrade', { replicaCount: 4, autoscaling, logLevel: 'warn' });
    expect(await replicas('scaled')).toBe('7');

    await to('auto', 'install', { autoscaling });
    await scale('auto', 5);
    await to('auto', 'upgrade', { autoscaling, logLevel: 'warn' });
    await scale('auto', 9);
    const { code } = await helm(['rollback', 'auto', '1', ...inHome]);
    expect([code, await replicas('auto')]).toEqual([0, '9']);
  });

  test('an installation keeps its names, and its namespace of keys is of no other release', async () => {
    const release = `of-the-northern-region-${home}-1`;
    // What the chart made of this name before it had a hash.
    const former = `${release}-partner-ingest`.slice(0, 40).replace(/-$/, '');
    const keysOf = `${former}-keys`;
    const first = { fullnameOverride: former, partnerKeys: { namespace: keysOf } };
    expect(await change('install', release, first)).toBe('');
    expect(await change('upgrade', release, {})).toBe('');
    const { out } = await helm(['get', 'manifest', release, ...inHome]);
    expect(out).toContain(`name: "${former}-ingest"`);
    expect(out).toContain(`value: ${keysOf}\n`);
    const other = { fullnameOverride: 'other', partnerKeys: { namespace: keysOf } };
    expect(await change('install', 'other', other)).toContain(
      `the namespace ${keysOf} of the partner keys is made by the release ${home}/${release}`,
    );
    const shared = { ...other, partnerKeys: { namespace: keysOf, createNamespace: false } };
    expect(await change('install', 'other', shared)).toBe('');
    await kubectl(['delete', 'namespace', keysOf, '--wait=false']);
  });
});
