/** What each option of the chart does, seen in the objects. */
import { describe, expect, test } from '@jest/globals';
import {
  environmentOf,
  evaluation,
  everything,
  one,
  podsOf,
  production,
  render,
  withValue,
  type Json,
  type Rendered,
} from '../support/chart.ts';

const { ingress } = everything;
const kinds = (objects: readonly Rendered[]): string[] => [
  ...new Set(objects.map(({ kind }) => kind)),
];
/** In the pods behind the DNS Service: 5353 on OpenShift. */
const DNS = [53, 53, 5_353, 5_353];
const podOf = (objects: readonly Rendered[], component: string): Json =>
  one(objects, 'Deployment', `-${component}`)['spec'].template as Json;
const volume = (spec: Json, name: string): Json =>
  (spec['volumes'] as Json[]).find((each) => each['name'] === name) ?? {};

describe('an option', () => {
  test('credentials come as files from the Secrets named, and stand in no variable', async () => {
    const objects = await render({
      ...production,
      mongodb: { existingSecret: 'mine', key: 'connection' },
    });
    expect(kinds(objects)).not.toContain('Secret');
    const processor = environmentOf(objects, 'processor');
    expect(processor).toMatchObject({
      MONGODB_URI_FILE: '/etc/partner-ingest/secrets/MONGODB_URI',
      REDIS_URL_FILE: '/etc/partner-ingest/secrets/REDIS_URL',
      SMTP_URL_FILE: '/etc/partner-ingest/secrets/SMTP_URL',
      LINK_SECRET_FILE: '/etc/partner-ingest/secrets/LINK_SECRET',
    });
    expect(
      Object.keys(environmentOf(objects, 'ingest')).filter((name) => /SMTP|LINK/.test(name)),
    ).toEqual([]);
    expect(volume(podOf(objects, 'ingest')['spec'], 'secrets')['projected']).toEqual({
      defaultMode: 0o440,
      sources: [
        { secret: { name: 'mine', items: [{ key: 'connection', path: 'MONGODB_URI' }] } },
        { secret: { name: 'redis', items: [{ key: 'url', path: 'REDIS_URL' }] } },
      ],
    });
  });

  test.each<[memory: string | number | null, heap: string | undefined]>([
    ['512Mi', '--max-semi-space-size=32 --max-old-space-size=256'],
    ['1Gi', '--max-semi-space-size=64 --max-old-space-size=512'],
    ['600M', '--max-semi-space-size=32 --max-old-space-size=286'],
    [268_435_456, '--max-semi-space-size=16 --max-old-space-size=128'],
    ['200Mi', '--max-semi-space-size=8 --max-old-space-size=100'],
    [null, undefined],
  ])('a memory limit of %s bounds the heap of Node by %s', async (memory, heap) => {
    const limits = { memory };
    const objects = await render({ ...evaluation, ingest: { resources: { limits } } });
    expect(environmentOf(objects, 'ingest')['NODE_OPTIONS']).toBe(heap);
  });

  test('NODE_OPTIONS of your own replace the bounds of the heap', async () => {
    const extraEnv = [{ name: 'NODE_OPTIONS', value: '--max-old-space-size=300' }];
    const pods = podsOf(await render({ ...evaluation, ingest: { pod: { extraEnv } } }));
    const spec: Json = pods.find(({ owner }) => owner.endsWith('-ingest'))?.spec ?? {};
    const named = (spec['containers'][0].env as Json[]).filter(
      ({ name }) => name === 'NODE_OPTIONS',
    );
    expect(named).toEqual(extraEnv);
  });

  test('a component may have a database user of its own, and the others share one', async () => {
    const uriOf = async (values: Json, component: string): Promise<Json[]> => {
      const pods = podsOf(await render(values));
      const { spec } = pods.find(({ owner }) => owner.endsWith(`-${component}`)) ?? { spec: {} };
      return (volume(spec, 'secrets')['projected'].sources as Json[]).filter(
        ({ secret }) => secret.items[0].path === 'MONGODB_URI',
      );
    };
    const own = { ...production, ingest: { mongodb: { existingSecret: 'narrow', key: 'k' } } };
    expect(await uriOf(own, 'ingest')).toEqual([
      { secret: { name: 'narrow', items: [{ key: 'k', path: 'MONGODB_URI' }] } },
    ]);
    for (const component of ['processor', 'controller', 'test']) {
      expect((await uriOf(own, component))[0]?.['secret'].name).toBe('mongodb');
    }
    // The shared one may be left out where nobody needs it.
    const each = Object.fromEntries(
      ['ingest', 'processor', 'controller', 'tests'].map((name) => [
        name,
        { mongodb: { existingSecret: name } },
      ]),
    );
    const alone = { ...production, mongodb: {}, ...each };
    expect((await uriOf(alone, 'controller'))[0]?.['secret'].name).toBe('controller');
    expect((await uriOf(alone, 'test'))[0]?.['secret'].name).toBe('tests');
    const file = { ...production, processor: { mongodb: { file: '/vault/uri' } } };
    expect(environmentOf(await render(file), 'processor')['MONGODB_URI_FILE']).toBe('/vault/uri');
  });

  test('a global registry goes before each image that names none', async () => {
    const images = async (values: Json): Promise<string[]> =>
      podsOf(await render(values)).flatMap(({ spec }) =>
        (spec['containers'] as Json[]).map(({ image }) => image),
      );
    const global = { imageRegistry: 'registry.example.com/mirror/' };
    for (const image of await images({ ...evaluation, global })) {
      expect(image).toMatch(/^registry\.example\.com\/mirror\/[a-z]/);
    }
    for (const registry of ['other.example.com', 'localhost', 'other:5000']) {
      const image = { repository: `${registry}/partner-ingest`, tag: '1' };
      expect(new Set(await images({ ...production, global, image }))).toEqual(
        new Set([`${registry}/partner-ingest:1`]),
      );
    }
  });

  test('a file that something else mounts takes the place of a Secret', async () => {
    const files = { existingSecret: '', file: '/vault/secrets/x' };
    const objects = await render({ ...production, mongodb: files, redis: files });
    expect(environmentOf(objects, 'ingest')).toMatchObject({
      MONGODB_URI_FILE: '/vault/secrets/x',
    });
    expect(podOf(objects, 'ingest')['spec'].volumes).toBeUndefined();
  });

  test('a CA bundle is trusted by every process and by the test', async () => {
    for (const caBundle of [
      { existingConfigMap: 'ca', key: 'root.pem' },
      { existingSecret: 'ca', key: 'root.pem' },
    ]) {
      const objects = await render({ ...production, caBundle });
      const pods = podsOf(objects);
      expect(pods.length).toBe(4);
      for (const { spec } of pods) {
        const [container] = spec['containers'] as Json[];
        expect(container?.['env']).toContainEqual({
          name: 'NODE_EXTRA_CA_CERTS',
          value: '/etc/partner-ingest/ca/ca.crt',
        });
        expect(container?.['volumeMounts']).toContainEqual({
          name: 'ca',
          mountPath: '/etc/partner-ingest/ca',
          readOnly: true,
        });
        const source = volume(spec, 'ca');
        // Readable by the pod's group only, as every credential.
        expect(source['secret']?.defaultMode).toBe(
          'existingSecret' in caBundle ? 0o440 : undefined,
        );
        expect((source['configMap'] ?? source['secret']).items).toEqual([
          { key: 'root.pem', path: 'ca.crt' },
        ]);
      }
    }
  });

  test('an Ingress has TLS, routes the base path, and lifts the limits on bodies', async () => {
    const object = one(
      await render(
        withValue(everything, 'ingress.annotations', { 'nginx.org/client-max-body-size': '1m' }),
      ),
      'Ingress',
    );
    expect(object.metadata.annotations).toEqual({
      'nginx.ingress.kubernetes.io/proxy-body-size': '0',
      'nginx.ingress.kubernetes.io/proxy-request-buffering': 'off',
      'nginx.org/client-max-body-size': '1m',
    });
    expect(object['spec']).toEqual({
      tls: ingress.tls,
      rules: [
        {
          host: 'api.example.com',
          http: {
            paths: [
              {
                path: '/api/v1',
                pathType: 'Prefix',
                backend: {
                  service: { name: 'demo-partner-ingest-ingest', port: { name: 'http' } },
                },
              },
            ],
          },
        },
      ],
    });
  });

  test('a Service with addresses outside keeps the address of the client', async () => {
    const service = {
      type: 'LoadBalancer',
      loadBalancerSourceRanges: ['192.0.2.0/24'],
      annotations: { 'cloud/tls': 'yes' },
      loadBalancerClass: 'cloud/network',
      ipFamilyPolicy: 'PreferDualStack',
      ipFamilies: ['IPv6', 'IPv4'],
    };
    const object = one(
      await render({ ...production, allowPlainHttp: true, service }),
      'Service',
      '-ingest',
    );
    expect(object['spec']).toMatchObject({
      type: 'LoadBalancer',
      externalTrafficPolicy: 'Local',
      loadBalancerSourceRanges: ['192.0.2.0/24'],
      loadBalancerClass: 'cloud/network',
      ipFamilyPolicy: 'PreferDualStack',
      ipFamilies: ['IPv6', 'IPv4'],
    });
    expect(object.metadata.annotations).toEqual({ 'cloud/tls': 'yes' });
  });

  test('autoscalers take over the number of pods', async () => {
    const objects = await render(everything);
    const fixed = (await render(production)).filter(({ kind }) => kind === 'Deployment');
    expect(fixed.map((object) => object['spec'].replicas)).toEqual([2, 2, 2]);
    expect(one(objects, 'Deployment', '-ingest')['spec'].replicas).toBeUndefined();
    expect(one(objects, 'Deployment', '-processor')['spec'].replicas).toBeUndefined();
    expect(one(objects, 'HorizontalPodAutoscaler', '-ingest')['spec']).toMatchObject({
      scaleTargetRef: { kind: 'Deployment', name: 'demo-partner-ingest-ingest' },
      metrics: [
        { type: 'Resource', resource: { name: 'cpu', target: { averageUtilization: 70 } } },
      ],
    });
    expect(one(objects, 'ScaledObject')['spec']).toMatchObject({
      scaleTargetRef: { name: 'demo-partner-ingest-processor' },
      triggers: [
        {
          type: 'prometheus',
          metadata: {
            serverAddress: 'http://prometheus.monitoring:9090',
            query:
              'sum(max by (state) (partner_ingest_records{namespace="demo",state=~"recorded|account_created"}))',
            // Without a number the number of pods stays what it is.
            ignoreNullValues: 'false',
            threshold: '500',
          },
        },
      ],
    });
    const external = {
      autoscaling: {
        enabled: true,
        by: 'external',
        jobsPerPod: 50,
        external: { name: 'backlog', matchLabels: { queue: 'all' } },
      },
    };
    expect(
      one(await render({ ...production, processor: external }), 'HorizontalPodAutoscaler')['spec']
        .metrics,
    ).toEqual([
      {
        type: 'External',
        external: {
          metric: { name: 'backlog', selector: { matchLabels: { queue: 'all' } } },
          target: { type: 'AverageValue', averageValue: '50' },
        },
      },
    ]);
  });

  test('the controller alone has rights: Secrets and Events where the keys are', async () => {
    const objects = await render({
      ...production,
      partnerKeys: { namespace: 'keys-a', createNamespace: false },
    });
    const roles = objects.filter(({ kind }) => kind === 'Role');
    const forKeys = [
      { apiGroups: [''], resources: ['secrets'], verbs: ['get', 'list', 'watch'] },
      { apiGroups: [''], resources: ['events'], verbs: ['create', 'patch'] },
    ];
    expect(
      Object.fromEntries(roles.map(({ metadata, rules }) => [metadata.namespace, rules])),
    ).toEqual({
      'keys-a': forKeys,
    });
    for (const binding of objects.filter(({ kind }) => kind === 'RoleBinding')) {
      expect(binding['subjects']).toEqual([
        { kind: 'ServiceAccount', name: 'demo-partner-ingest-controller', namespace: 'demo' },
      ]);
    }
    expect(kinds(objects)).not.toContain('ClusterRole');
    expect(kinds(objects)).not.toContain('Namespace');
    expect(environmentOf(objects, 'controller')).toMatchObject({ WATCH_NAMESPACES: 'keys-a' });
  });

  test('the namespace of the keys outlives the release, but for evaluation', async () => {
    const kept = one(await render(production), 'Namespace');
    expect(kept.metadata).toMatchObject({
      name: 'demo-partner-ingest-keys',
      annotations: { 'helm.sh/resource-policy': 'keep' },
    });
    expect(kept.metadata.namespace).toBeUndefined();
    expect(one(await render(evaluation), 'Namespace').metadata.annotations).toBeUndefined();
  });

  test('keys from a folder need neither rights nor a namespace', async () => {
    const objects = await render({ ...production, partnerKeys: { source: 'directory:/keys' } });
    expect(
      kinds(objects).filter((kind) => ['Role', 'RoleBinding', 'Namespace'].includes(kind)),
    ).toEqual([]);
    expect(podOf(objects, 'controller')['spec'].automountServiceAccountToken).toBe(false);
  });

  test('pods are spread over zones and nodes, or as you say', async () => {
    const spread = async (values: Json): Promise<Json[] | undefined> =>
      podOf(await render({ ...production, pods: values }), 'ingest')['spec']
        .topologySpreadConstraints as Json[] | undefined;
    expect((await spread({}))?.map((each) => each['topologyKey'])).toEqual([
      'topology.kubernetes.io/zone',
      'kubernetes.io/hostname',
    ]);
    expect(await spread({ topologySpreadConstraints: [] })).toBeUndefined();
    const [own] =
      (await spread({
        topologySpreadConstraints: [
          { topologyKey: 'rack', maxSkew: 1, whenUnsatisfiable: 'DoNotSchedule' },
        ],
      })) ?? [];
    expect(own?.['labelSelector'].matchLabels['app.kubernetes.io/component']).toBe('ingest');
  });

  test('network policies: partners reach ingest, others only what they need', async () => {
    const objects = await render({
      ...everything,
      networkPolicy: {
        ...everything.networkPolicy,
        partnersFrom: [{ namespaceSelector: { matchLabels: { name: 'ingress' } } }],
      },
    });
    const release = {
      'app.kubernetes.io/name': 'partner-ingest',
      'app.kubernetes.io/instance': 'demo',
    };
    const [ingest, admin] = one(objects, 'NetworkPolicy', '-ingest')['spec'].ingress as Json[];
    expect(ingest?.['ports']).toEqual([{ port: 'http', protocol: 'TCP' }]);
    // The release's own pods too: the test sends an application.
    expect(ingest?.['from']).toHaveLength(2);
    expect(admin?.['ports']).toEqual([{ port: 'admin', protocol: 'TCP' }]);
    // One namespace and this release.
    expect(admin?.['from']).toEqual([
      { namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': 'monitoring' } } },
      { podSelector: { matchLabels: release } },
    ]);
    const reached = (component: string, of = objects): number[] =>
      (one(of, 'NetworkPolicy', `-${component}`)['spec'].egress as Json[]).flatMap((rule) =>
        (rule['ports'] as Json[]).map(({ port }) => port as number),
      );
    expect(reached('ingest')).toEqual([...DNS, 27017, 6379, 4317, 4318]);
    expect(reached('processor')).toEqual([...DNS, 27017, 6379, 4317, 4318, 25, 465, 587]);
    expect(reached('controller')).toEqual([...DNS, 27017, 6379, 443, 6443]);
    const firstTry = await render({
      ...evaluation,
      networkPolicy: { enabled: true, egress: { enabled: true } },
    });
    expect(reached('processor', firstTry)).toContain(1_025);
    expect(reached('ingest', firstTry)).not.toContain(1_025);
    expect(reached('processor')).not.toContain(1_025);
    // The stand-ins ask for no password, so nobody else may reach them.
    for (const store of ['mongodb', 'redis', 'mail']) {
      expect(one(firstTry, 'NetworkPolicy', `-${store}`)['spec'].ingress).toEqual([
        { from: [{ podSelector: { matchLabels: release } }] },
      ]);
    }
    expect(kinds(await render({ ...production, networkPolicy: { enabled: false } }))).not.toContain(
      'NetworkPolicy',
    );
  });

  test('what goes out goes to the peers named, and DNS to the cluster alone', async () => {
    const to = (cidr: string): Json[] => [{ ipBlock: { cidr } }];
    const egress = {
      enabled: true,
      mongodbTo: to('10.0.1.0/24'),
      redisTo: to('10.0.2.0/24'),
      smtpTo: to('10.0.3.0/24'),
      kubernetesTo: to('10.0.4.1/32'),
      tracingTo: to('10.0.5.0/24'),
    };
    const rules = (objects: readonly Rendered[], component: string): Json =>
      Object.fromEntries(
        (one(objects, 'NetworkPolicy', `-${component}`)['spec'].egress as Json[]).map(
          ({ ports, to: peers }) => [
            (ports as Json[]).map(({ port }) => port as number).join(' '),
            peers,
          ],
        ),
      );
    const objects = await render({ ...everything, networkPolicy: { egress } });
    const dns = [
      {
        namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': 'kube-system' } },
        podSelector: { matchLabels: { 'k8s-app': 'kube-dns' } },
      },
    ];
    const stores = { [DNS.join(' ')]: dns, '27017': egress.mongodbTo, '6379': egress.redisTo };
    const traces = { '4317 4318': egress.tracingTo };
    expect(rules(objects, 'ingest')).toEqual({ ...stores, ...traces });
    expect(rules(objects, 'processor')).toEqual({
      ...stores,
      ...traces,
      '25 465 587': egress.smtpTo,
    });
    expect(rules(objects, 'controller')).toEqual({ ...stores, '443 6443': egress.kubernetesTo });
    // The stores of a first try are known to the chart.
    const own = rules(
      await render({ ...evaluation, networkPolicy: { egress: { enabled: true } } }),
      'processor',
    );
    const componentOf = (ports: string): string =>
      own[ports][0].podSelector.matchLabels['app.kubernetes.io/component'] as string;
    expect(['27017', '6379', '25 465 587 1025'].map(componentOf)).toEqual([
      'mongodb',
      'redis',
      'mail',
    ]);
  });

  test('monitors find the admin ports', async () => {
    const spec = { interval: '15s', labels: { release: 'prometheus' } };
    const pods = one(
      await render({ ...production, metrics: { podMonitor: { enabled: true, ...spec } } }),
      'PodMonitor',
    );
    expect(pods.metadata.labels['release']).toBe('prometheus');
    expect(pods['spec'].podMetricsEndpoints).toEqual([
      { port: 'admin', path: '/metrics', interval: '15s' },
    ]);
    const objects = await render({
      ...production,
      metrics: { serviceMonitor: { enabled: true, ...spec } },
    });
    const services = one(objects, 'ServiceMonitor');
    expect(services['spec'].endpoints).toEqual([
      { port: 'admin', path: '/metrics', interval: '15s' },
    ]);
    const wanted = Object.entries(services['spec'].selector.matchLabels as Record<string, string>);
    const found = objects.filter(
      ({ kind, metadata }) =>
        kind === 'Service' && wanted.every(([key, value]) => metadata.labels[key] === value),
    );
    expect(found.map(({ metadata }) => metadata.name)).toEqual(
      ['ingest', 'processor', 'controller'].map((name) => `demo-partner-ingest-${name}-metrics`),
    );
  });

  test('a first try brings its stores, a demo partner, and data that goes with it', async () => {
    const objects = await render(evaluation);
    const addresses = one(objects, 'Secret', '-evaluation')['stringData'] as Record<string, string>;
    expect(addresses).toMatchObject({
      mongodb: 'mongodb://demo-partner-ingest-mongodb:27017/?directConnection=true',
      redis: 'redis://demo-partner-ingest-redis:6379',
      smtp: 'smtp://demo-partner-ingest-mail:1025',
    });
    const partner = one(objects, 'Secret', 'partner-demo');
    expect(partner.metadata).toMatchObject({
      namespace: 'demo-partner-ingest-keys',
      labels: { 'partner-ingest.io/partner': 'demo' },
    });
    expect(Object.values(partner['stringData'] as object)).toEqual([addresses['apiKey']]);
    const database = one(objects, 'StatefulSet', '-mongodb')['spec'] as Json;
    expect(database['persistentVolumeClaimRetentionPolicy']).toEqual({
      whenDeleted: 'Delete',
      whenScaled: 'Delete',
    });
    // Stand-ins of another user, with their data elsewhere.
    const standIn = {
      image: 'localhost/documentdb:2',
      args: [],
      user: 101,
      dataPath: '/data',
      storage: '',
    };
    const other = one(
      await render(withValue(evaluation, 'evaluation.mongodb', standIn)),
      'StatefulSet',
      '-mongodb',
    )['spec'] as Json;
    expect(other['volumeClaimTemplates']).toBeUndefined();
    expect(other['template'].spec).toMatchObject({
      securityContext: { runAsUser: 101, fsGroup: 101 },
    });
    const [container] = other['template'].spec.containers as Json[];
    expect(container?.['image']).toBe('localhost/documentdb:2');
    expect(container?.['args']).toBeUndefined();
    expect(container?.['volumeMounts']).toContainEqual({ name: 'data', mountPath: '/data' });
  });

  test('the test sends an application where it has a key, and cleans up after itself', async () => {
    const testPod = async (values: Json): Promise<Rendered> => one(await render(values), 'Pod');
    const withKey = await testPod({
      ...production,
      tests: { existingSecret: 'partner', key: 'k' },
    });
    expect(withKey.metadata.annotations).toMatchObject({
      'helm.sh/hook': 'test',
      'helm.sh/hook-delete-policy': 'before-hook-creation,hook-succeeded',
    });
    expect(volume(withKey['spec'], 'key')['secret']).toMatchObject({
      secretName: 'partner',
      items: [{ key: 'k', path: 'API_KEY' }],
    });
    const names = (pod: Rendered): string[] =>
      (pod['spec'].containers[0].env as Json[]).map(({ name }) => name as string);
    expect(names(withKey)).toContain('API_KEY_FILE');
    expect(names(await testPod(evaluation))).toContain('API_KEY_FILE');
    expect(names(await testPod(production))).not.toContain('API_KEY_FILE');
  });
});
