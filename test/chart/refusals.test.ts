/** Every contradiction stops an installation with a message that says what to do. */
import { beforeAll, describe, expect, test } from '@jest/globals';
import { addresses } from '../support/email-addresses.ts';
import {
  evaluation,
  everything,
  production,
  refusal,
  render,
  withValue,
  type Json,
} from '../support/chart.ts';

const { ingress, trustedProxies } = everything;
const httpRoute = { enabled: true, parentRefs: [{ name: 'public', sectionName: 'https' }] };
const unnamed = { enabled: true, parentRefs: [{ name: 'public' }] };
const monitors = { podMonitor: { enabled: true }, serviceMonitor: { enabled: true } };
const loadBalancer = { type: 'LoadBalancer' };

/** A value, and a pattern that the message must match. */
type Fault = readonly [path: string, value: unknown, says: RegExp];

/** All are wrong at once, because one message names every fault. */
const contradictions: readonly (readonly [string, Json, readonly Fault[]])[] = [
  [
    'nothing given',
    {},
    [
      ['mongodb', {}, /mongodb\.existingSecret is empty.*evaluation\.enabled=true/],
      ['redis', {}, /redis\.existingSecret is empty/],
      ['smtp', {}, /smtp\.existingSecret is empty/],
      ['links', {}, /links\.existingSecret is empty/],
      ['smtp.from', '', /smtp\.from is empty/],
      ['links.loginUrl', '', /links\.loginUrl is empty/],
    ],
  ],
  [
    'a first try that others reach, or with stores of yours',
    evaluation,
    [
      ['redis.existingSecret', 'a', /evaluation\.enabled .*redis\.existingSecret/],
      ['ingest.mongodb.existingSecret', 'a', /leave ingest\.mongodb\.existingSecret/],
      ['ingress', ingress, /evaluation\.enabled and ingress\.enabled are both true/],
      ['httpRoute', httpRoute, /evaluation\.enabled and httpRoute\.enabled are both true/],
      ['trustedProxies', [], /ingress\.enabled needs trustedProxies/],
      ['service', loadBalancer, /evaluation\.enabled with service\.type LoadBalancer/],
      ['tests.existingSecret', 'a', /tests\.existingSecret is set/],
    ],
  ],
  [
    'a production',
    production,
    [
      ['mongodb.file', '/vault/uri', /mongodb\.existingSecret and mongodb\.file/],
      ['redis.file', '/vault/url', /redis\.existingSecret and redis\.file/],
      ['probe', { existingSecret: 'a', file: '/b' }, /probe\.existingSecret and probe\.file/],
      [
        'processor.mongodb',
        { existingSecret: 'a', file: '/b' },
        /processor\.mongodb\.file are both/,
      ],
      ['ingress', { enabled: true }, /ingress\.enabled needs trustedProxies/],
      ['ingress.hosts', [], /needs ingress\.hosts/],
      ['ingress.tls', [], /ingress\.enabled needs ingress\.tls/],
      ['httpRoute', { enabled: true }, /httpRoute\.enabled needs trustedProxies/],
      ['httpRoute.parentRefs', [], /needs httpRoute\.parentRefs/],
      ['httpRoute.enabled', true, /ingress\.enabled and httpRoute\.enabled/],
      ['service.nodePort', 30080, /service\.nodePort is set/],
      ['service.loadBalancerClass', 'x', /service\.loadBalancerClass is set/],
      ['caBundle', { existingConfigMap: 'a', existingSecret: 'b' }, /caBundle\.existingSecret are/],
      ['partnerKeys.namespace', 'demo', /partnerKeys\.namespace is demo/],
      ['pods.extraPodSpec', { containers: [] }, /pods\.extraPodSpec holds containers/],
      ['ingest.pod.extraPodSpec', { schedulerName: 'x' }, /ingest\.pod\.extraPodSpec holds sch/],
      ['ingest.podDisruptionBudget.minAvailable', 1, /ingest\.podDisruptionBudget: set one/],
      ['controller.podDisruptionBudget.maxUnavailable', null, /controller\.podDisruptionBudget: s/],
      ['ingest.autoscaling', { enabled: true, minReplicas: 5, maxReplicas: 4 }, /\(5\) is greater/],
      ['ingest.resources.requests', { cpu: null }, /ingest\.resources\.requests\.cpu, which is/],
      ['processor.autoscaling.enabled', true, /keda\.prometheusAddress/],
      ['metrics', monitors, /scraped twice/],
      ['image.tag', 'latest', /image\.tag is latest, .*give the tag of a version/],
      ['commonLabels', { 'app.kubernetes.io/instance': 'a' }, /commonLabels holds app\.kubernetes/],
      ['ingest.pod.labels', { 'app.kubernetes.io/name': 'a' }, /ingest\.pod\.labels holds app\./],
      ['pods.extraContainers', [{ name: 'ingest' }], /ingest would have two containers named inge/],
      [
        'processor.pod',
        { extraContainers: [{ name: 'a' }], extraInitContainers: [{ name: 'a' }] },
        /processor would have two containers named a/,
      ],
    ],
  ],
  [
    'another production',
    production,
    [
      ['trustedProxies', ['10.0.0.0/8', '0.0.0.0/0'], /trustedProxies holds 0\.0\.0\.0\/0/],
      ['httpRoute', unnamed, /public has no sectionName/],
      ['service', loadBalancer, /service\.type LoadBalancer serves plain HTTP/],
      ['partnerKeys.namespace', 'default', /partnerKeys\.namespace is default, a namespace of the/],
      ['processor.autoscaling', { enabled: true, by: 'external' }, /external\.name/],
      ['mongodb', {}, /mongodb\.existingSecret is empty/],
      ['ingest.statusEndpoint', false, /look-up, which ingest\.statusEndpoint=false switches off/],
      ['tests.existingSecret', 'a', /probe and tests wait for the outcome by a look-up/],
      ['ingest.mongodb.existingSecret', 'a', /which processor, controller, console would use/],
    ],
  ],
  ...['kube-public', 'openshift-config', 'istio-system'].map(
    (name) =>
      [
        `keys in ${name}`,
        production,
        [['partnerKeys.namespace', name, new RegExp(`is ${name}, a namespace of the cluster`)]],
      ] as const,
  ),
];

const misfits: readonly Fault[] = [
  ['imagee', {}, /additional properties 'imagee' not allowed/],
  ['ingest.replicas', 3, /ingest.*additional properties 'replicas' not allowed/],
  ['ingest.pod.nodeSelektor', {}, /ingest\/pod.*additional properties 'nodeSelektor' not allowed/],
  // Helm removes a key without a value.
  ['revisionHistoryLimit', null, /missing propert.*'revisionHistoryLimit'/],
  ['service.port', null, /'\/service'.*missing propert.*'port'/],
  ['pods.labels', null, /'\/pods'.*missing propert.*'labels'/],
  ['controller.mongodb', { key: null }, /'\/controller\/mongodb'.*missing propert.*'key'/],
  ['image.repository', 20_261_125, /image\/repository.*got number, want string/],
  ['smtp.from', true, /smtp\/from.*got boolean, want string/],
  ['pods.extraEnv', [{ name: 'A', value: 1 }], /extraEnv\/0\/value.*got number, want string/],
  ['pods.extraContainers', [{ name: 'a', env: [{ name: 'A', value: 1 }] }], /env\/0\/value/],
  ['pods.tolerations', [{ key: 'dedicated', value: true }], /tolerations\/0\/value.*boolean/],
  ['pods.securityContext', { runAsUser: '1000' }, /runAsUser.*got string/],
  ['probes.liveness', { periodSeconds: '5' }, /liveness\/periodSeconds.*got string/],
  ['metrics.dashboard.labels', { grafana_dashboard: 1 }, /grafana_dashboard.*got number/],
  ['processor.autoscaling.keda.metadata', { timeout: 1_000 }, /metadata\/timeout.*got number/],
  ['networkPolicy.egress.smtpPorts', ['25'], /smtpPorts\/0.*got string/],
  ['image.digest', 'sha256:12', /image\/digest.*pattern/],
  ['image.pullPolicy', 'Sometimes', /image\/pullPolicy.*IfNotPresent/],
  ['ingest.port', 80, /ingest\/port.*1,?024/],
  ['ingest.replicaCount', -1, /ingest\/replicaCount/],
  ['ingest.acceptTimeoutMs', 60_000, /ingest\/acceptTimeoutMs.*10[,.]?000/],
  ['trustedProxies', '10.0.0.0/8', /trustedProxies.*array/],
  ['links.loginUrl', 'http://login.example.com', /links\/loginUrl.*pattern/],
  ['evaluation.loginUrl', 'http://login.example.com', /evaluation\/loginUrl.*pattern/],
  ['partnerKeys.namespace', 'Not_A_Name', /partnerKeys\/namespace.*pattern/],
  ['partnerKeys.source', 'vault', /partnerKeys\/source.*pattern/],
  ['ingest.annotations', { on: true }, /ingest\/annotations.*string/],
  ['retention.completedDays', 0, /retention\/completedDays/],
  ['networkPolicy.egress.dnsTo', [], /dnsTo/],
  ['tracing.sampleRatio', 2, /tracing\/sampleRatio/],
  ['evaluation.linkSecret', 'short', /evaluation\/linkSecret/],
  ['smtp.clientName', 'mail.example.com\r\nx', /smtp\/clientName/],
];

const withFaults = (base: Json, faults: readonly Fault[]): Json =>
  faults.reduce<Json>((values, [path, value]) => withValue(values, path, value), base);

describe.each(contradictions)('refused: %s', (_, base, faults) => {
  let message: string;
  beforeAll(async () => {
    message = await refusal(withFaults(base, faults));
  });
  test.each(faults)('%s: %j', (_path, _value, says) => {
    expect(message).toContain('partner-ingest cannot be installed like this');
    expect(message.split('\n')).toContainEqual(expect.stringMatching(says));
  });
});

describe('refused by the schema', () => {
  let message: string;
  beforeAll(async () => {
    message = await refusal(withFaults(production, misfits));
  });
  test.each(misfits)('%s: %j', (_path, _value, says) => {
    expect(message.split('\n')).toContainEqual(expect.stringMatching(says));
  });

  // Helm's regular expressions differ from those of the settings.
  test.each(addresses)(
    '%j is an e-mail address for schema and settings alike: %s',
    async (address, right) => {
      const places = ['smtp.from', 'tests.email', 'evaluation.mailFrom'];
      const values = places.reduce<Json>((all, path) => withValue(all, path, address), production);
      const said = right ? await render(values).then(() => '') : await refusal(values);
      for (const place of places)
        expect(said.includes(`'/${place.replace('.', '/')}'`)).toBe(!right);
    },
  );
});

test('a kind that the cluster lacks is refused with a sentence', async () => {
  const values = {
    ...production,
    trustedProxies,
    httpRoute,
    metrics: { podMonitor: { enabled: true }, prometheusRule: { enabled: true } },
    processor: {
      autoscaling: { enabled: true, keda: { prometheusAddress: 'http://prometheus:9090' } },
    },
    extraManifests: [{ apiVersion: 'example.com/v1', kind: 'Strange', metadata: { name: 'a' } }],
  };
  // `helm template` without a cluster knows no kinds and renders anyway.
  const told = await refusal(values, ['v1/Pod', 'monitoring.coreos.com/v1/PodMonitor']);
  for (const says of [
    'httpRoute.enabled makes a HTTPRoute (gateway.networking.k8s.io/v1), a kind that this cluster',
    'metrics.prometheusRule.enabled makes a PrometheusRule (monitoring.coreos.com/v1)',
    'processor.autoscaling.by=keda makes a ScaledObject (keda.sh/v1alpha1)',
    'extraManifests makes a Strange (example.com/v1)',
  ])
    expect(told).toContain(says);
  expect(told).not.toContain('metrics.podMonitor');
  expect((await render(values)).length).toBeGreaterThan(10);
});

test('the values that a refusal asks for are accepted', async () => {
  const allowed: readonly Json[] = [
    evaluation,
    production,
    everything,
    { ...production, trustedProxies, httpRoute },
    { ...production, trustedProxies, allowPlainHttp: true, ingress: { ...ingress, tls: [] } },
    { ...production, trustedProxies, allowPlainHttp: true, httpRoute: unnamed },
    { ...production, allowPlainHttp: true, service: { type: 'NodePort', nodePort: 30080 } },
    withValue(production, 'ingest.podDisruptionBudget', {
      minAvailable: '50%',
      maxUnavailable: null,
    }),
    withValue(withValue(production, 'mongodb.existingSecret', ''), 'mongodb.file', '/vault/uri'),
    withValue(production, 'ingest.pod.extraPodSpec', { shareProcessNamespace: true }),
    { ...production, image: { tag: '20261125' } },
  ];
  for (const values of allowed) expect((await render(values)).length).toBeGreaterThan(10);
});
