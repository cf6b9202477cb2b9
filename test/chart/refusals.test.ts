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
const budget = (minAvailable: unknown, maxUnavailable: unknown): Json => ({
  podDisruptionBudget: { minAvailable, maxUnavailable },
});

/** Values, and what the message must say: the key at fault, and why. */
const contradictions: readonly [string, Json, readonly RegExp[]][] = [
  [
    'nothing given: all that is missing, at once',
    {},
    [
      /mongodb\.existingSecret is empty/,
      /redis\.existingSecret is empty/,
      /smtp\.existingSecret is empty/,
      /links\.existingSecret is empty/,
      /smtp\.from is empty/,
      /links\.loginUrl is empty/,
      /evaluation\.enabled=true/,
    ],
  ],
  [
    'evaluation beside a store of yours',
    { ...evaluation, redis: { existingSecret: 'redis' } },
    [/evaluation\.enabled .*redis\.existingSecret/],
  ],
  [
    'a Secret and a file',
    withValue(production, 'mongodb.file', '/vault/uri'),
    [/mongodb\.existingSecret and mongodb\.file/],
  ],
  [
    'an Ingress and a route',
    { ...production, trustedProxies, ingress, httpRoute },
    [/ingress\.enabled and httpRoute\.enabled/],
  ],
  [
    'an Ingress without trusted proxies',
    { ...production, ingress },
    [/ingress\.enabled needs trustedProxies/],
  ],
  [
    'a route without trusted proxies',
    { ...production, httpRoute },
    [/httpRoute\.enabled needs trustedProxies/],
  ],
  [
    'an Ingress without trusted proxies, for a first try',
    { ...evaluation, ingress },
    [/ingress\.enabled needs trustedProxies/],
  ],
  [
    'everybody trusted',
    { ...production, trustedProxies: ['10.0.0.0/8', '0.0.0.0/0'] },
    [/trustedProxies holds 0\.0\.0\.0\/0/],
  ],
  [
    'an Ingress without TLS',
    { ...production, trustedProxies, ingress: { ...ingress, tls: [] } },
    [/ingress\.enabled needs ingress\.tls/],
  ],
  [
    'an Ingress without hosts',
    { ...production, trustedProxies, ingress: { ...ingress, hosts: [] } },
    [/needs ingress\.hosts/],
  ],
  [
    'a route without a Gateway',
    { ...production, trustedProxies, httpRoute: { enabled: true } },
    [/needs httpRoute\.parentRefs/],
  ],
  [
    'a route that would also serve plain HTTP',
    {
      ...production,
      trustedProxies,
      httpRoute: { enabled: true, parentRefs: [{ name: 'public' }] },
    },
    [/public has no sectionName/],
  ],
  [
    'a load balancer in clear',
    { ...production, service: { type: 'LoadBalancer' } },
    [/service\.type LoadBalancer serves plain HTTP/],
  ],
  [
    'a node port nobody opens',
    { ...production, service: { nodePort: 30080 } },
    [/service\.nodePort is set/],
  ],
  [
    'two CA bundles',
    { ...production, caBundle: { existingConfigMap: 'a', existingSecret: 'b' } },
    [/caBundle\.existingConfigMap and caBundle\.existingSecret/],
  ],
  [
    "keys in the release's namespace",
    { ...production, partnerKeys: { namespace: 'demo' } },
    [/partnerKeys\.namespace is demo/],
  ],
  ...['kube-system', 'default', 'openshift-config', 'istio-system'].map(
    (namespace): (typeof contradictions)[number] => [
      `keys in ${namespace}`,
      { ...production, partnerKeys: { namespace } },
      [new RegExp(`partnerKeys\\.namespace is ${namespace}, a namespace of the cluster`)],
    ],
  ),
  [
    'a first try that others reach',
    { ...evaluation, trustedProxies, ingress, httpRoute, service: { type: 'LoadBalancer' } },
    [
      /evaluation\.enabled and ingress\.enabled are both true/,
      /evaluation\.enabled and httpRoute\.enabled are both true/,
      /evaluation\.enabled with service\.type LoadBalancer/,
    ],
  ],
  [
    "evaluation beside a component's store of yours",
    { ...evaluation, ingest: { mongodb: { existingSecret: 'mine' } } },
    [/leave ingest\.mongodb\.existingSecret/],
  ],
  [
    'a component without a database',
    { ...production, mongodb: {}, ingest: { mongodb: { existingSecret: 'a' } } },
    [/mongodb\.existingSecret is empty, which processor, controller, tests would use/],
  ],
  [
    "a component's Secret and file",
    { ...production, processor: { mongodb: { existingSecret: 'a', file: '/b' } } },
    [/processor\.mongodb\.existingSecret and processor\.mongodb\.file/],
  ],
  [
    'fields of pods that the chart sets itself',
    {
      ...production,
      pods: { extraPodSpec: { containers: [] } },
      ingest: { pod: { extraPodSpec: { schedulerName: 'x', shareProcessNamespace: true } } },
    },
    [
      /pods\.extraPodSpec holds containers/,
      /ingest\.pod\.extraPodSpec holds schedulerName/,
      /^(?!.*shareProcess)/s,
    ],
  ],
  [
    'a class of load balancer without one',
    { ...production, service: { loadBalancerClass: 'x' } },
    [/service\.loadBalancerClass is set/],
  ],
  [
    'both bounds of a budget',
    { ...production, ingest: budget(1, 1) },
    [/ingest\.podDisruptionBudget: set one/],
  ],
  [
    'no bound of a budget',
    { ...production, controller: budget(null, null) },
    [/controller\.podDisruptionBudget: set one/],
  ],
  [
    'least pods above most pods',
    { ...production, ingest: { autoscaling: { enabled: true, minReplicas: 5, maxReplicas: 4 } } },
    [/ingest\.autoscaling: minReplicas \(5\) is greater than maxReplicas \(4\)/],
  ],
  [
    'CPU in percent of nothing',
    {
      ...production,
      ingest: { autoscaling: { enabled: true }, resources: { requests: { cpu: null } } },
    },
    [/ingest\.resources\.requests\.cpu, which is not set/],
  ],
  [
    'KEDA without Prometheus',
    { ...production, processor: { autoscaling: { enabled: true } } },
    [/keda\.prometheusAddress/],
  ],
  [
    'an external metric without a name',
    { ...production, processor: { autoscaling: { enabled: true, by: 'external' } } },
    [/external\.name/],
  ],
  [
    'two monitors',
    {
      ...production,
      metrics: { podMonitor: { enabled: true }, serviceMonitor: { enabled: true } },
    },
    [/scraped twice/],
  ],
  [
    "a test key beside the demo partner's",
    { ...evaluation, tests: { existingSecret: 'key' } },
    [/tests\.existingSecret is set/],
  ],
];

/** What the JSON schema refuses: where, and what of it. */
const misfits: readonly [string, unknown, RegExp][] = [
  ['imagee', {}, /additional properties 'imagee' not allowed/],
  ['ingest.replicas', 3, /ingest.*additional properties 'replicas' not allowed/],
  ['ingest.pod.nodeSelektor', {}, /ingest\/pod.*additional properties 'nodeSelektor' not allowed/],
  ['image.tag', 'latest', /image\/tag/],
  ['image.tag', 20_261_125, /image\/tag.*got number, want string/],
  ['pods.extraEnv', [{ name: 'A', value: 1 }], /extraEnv\/0\/value.*got number, want string/],
  ['ingest.pod.extraEnv', [{ name: 'A', value: true }], /ingest\/pod.*value.*got boolean/],
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
  ['ingest.replicaCount', 'two', /ingest\/replicaCount.*integer/],
  ['ingest.acceptTimeoutMs', 60_000, /ingest\/acceptTimeoutMs.*10[,.]?000/],
  ['trustedProxies', '10.0.0.0/8', /trustedProxies.*array/],
  ['service.type', 'ExternalName', /service\/type/],
  ['links.loginUrl', 'login.example.com', /links\/loginUrl.*pattern/],
  ['links.loginUrl', 'http://login.example.com', /links\/loginUrl.*pattern/],
  ['evaluation.loginUrl', 'http://login.example.com', /evaluation\/loginUrl.*pattern/],
  ['partnerKeys.namespace', 'Not_A_Name', /partnerKeys\/namespace.*pattern/],
  ['partnerKeys.source', 'vault', /partnerKeys\/source.*pattern/],
  ['ingest.annotations', { on: true }, /ingest\/annotations.*string/],
  ['retention.completedDays', 0, /retention\/completedDays/],
  ['logLevel', 'verbose', /logLevel/],
  ['networkPolicy.egress.dnsTo', [], /dnsTo/],
  ['smtp.tls', 'maybe', /smtp\/tls/],
  ['tracing.sampleRatio', 2, /tracing\/sampleRatio/],
  ['processor.autoscaling.by', 'hope', /processor\/autoscaling\/by/],
  ['evaluation.linkSecret', 'short', /evaluation\/linkSecret/],
];

/**
 * Helm names every misfit by its place, so that one message is of many; a place with two has the
 * second in another.
 */
const placed = misfits.map(([path, value, expected], index) => {
  const before = misfits.slice(0, index).filter(([other]) => other === path).length;
  return [path, value, expected, before] as const;
});

describe('refused', () => {
  let misfitting: readonly string[];
  beforeAll(async () => {
    const several = [0, 1].map((nth) => placed.filter(([, , , before]) => before === nth));
    misfitting = await Promise.all(
      several.map((each) =>
        refusal(
          each.reduce<Json>((values, [path, value]) => withValue(values, path, value), production),
        ),
      ),
    );
  });

  test.each(contradictions)('%s', async (_, values, messages) => {
    const message = await refusal(values);
    expect(message).toContain('partner-ingest cannot be installed like this');
    for (const expected of messages) expect(message).toMatch(expected);
  });

  test.each(placed)('%s: %j', (_path, _value, expected, nth) => {
    expect(misfitting[nth]).toContain("values don't meet the specifications of the schema");
    expect(misfitting[nth]?.split('\n')).toContainEqual(expect.stringMatching(expected));
  });

  test('what it asks for instead is accepted', async () => {
    const allowed: readonly Json[] = [
      evaluation,
      production,
      everything,
      { ...production, trustedProxies, httpRoute },
      { ...production, trustedProxies, allowPlainHttp: true, ingress: { ...ingress, tls: [] } },
      {
        ...production,
        trustedProxies,
        allowPlainHttp: true,
        httpRoute: { enabled: true, parentRefs: [{ name: 'public' }] },
      },
      { ...production, allowPlainHttp: true, service: { type: 'NodePort', nodePort: 30080 } },
      { ...production, ingest: budget('50%', null) },
      withValue(withValue(production, 'mongodb.existingSecret', ''), 'mongodb.file', '/vault/uri'),
      { ...production, image: { tag: '20261125' } },
    ];
    for (const values of allowed) expect((await render(values)).length).toBeGreaterThan(10);
  });
});

describe('addresses are those that the settings take', () => {
  const valuesOf = (address: string): Json[] => [
    withValue(production, 'smtp.from', address),
    withValue(production, 'tests.email', address),
    withValue(evaluation, 'evaluation.mailFrom', address),
  ];
  test.each(addresses)('%j: %s', async (address, right) => {
    for (const values of valuesOf(address)) {
      if (right) await render(values);
      else expect(await refusal(values)).toMatch(/from|email|mailFrom/);
    }
  });

  test.each(['mail', '192.0.2.1', '[mail.example.com]', 'mail.example.com\r\nx'])(
    'nor is a relay greeted as %j',
    async (name) => {
      expect(await refusal(withValue(production, 'smtp.clientName', name))).toMatch(/clientName/);
    },
  );
});
