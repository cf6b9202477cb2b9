/**
 * Values ↔ templates ↔ the processes' settings, compared in both directions: nothing is dead,
 * nothing is misspelt.
 */
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parse } from 'yaml';
import { hashApiKey } from '../../internal/partner/api-key.ts';
import { hasPublishedSecret, isPublishedKey } from '../../internal/partner/published.ts';
import { chartValues, type ChartValue } from '../../tools/chart-docs.ts';
import {
  describeSettings,
  loadConfig,
  type ProcessName,
} from '../../internal/settings/settings.ts';
import {
  CHART,
  environmentOf,
  evaluation,
  everything,
  production,
  refusal,
  render,
  renderText,
  valuesYaml,
  withValue,
  type Json,
} from '../support/chart.ts';

interface EvaluationValues {
  readonly evaluation: {
    readonly demoPartner: { readonly apiKey: string };
    readonly linkSecret: string;
  };
}

const PROCESSES: readonly ProcessName[] = ['ingest', 'processor', 'controller'];
const leavesOf = (value: ChartValue): ChartValue[] =>
  value.inside.length === 0 ? [value] : value.inside.flatMap(leavesOf);
const values = chartValues(valuesYaml);
const leaves = values.flatMap(leavesOf);
const paths = new Set<string>();
const note = (value: ChartValue): void => {
  paths.add(value.path.join('.'));
  value.inside.forEach(note);
};
values.forEach(note);

const OWN = { mongodb: { existingSecret: 'own' } };

/** Renders in which every value has an effect somewhere. */
const bases: readonly Json[] = [
  everything,
  evaluation,
  {
    ...everything,
    ingress: {},
    httpRoute: { enabled: true, parentRefs: [{ name: 'public', sectionName: 'https' }] },
  },
  { ...production, allowPlainHttp: true, service: { type: 'LoadBalancer' } },
  { ...production, allowPlainHttp: true, service: { type: 'NodePort' } },
  { ...production, ingest: OWN, processor: OWN, controller: OWN, tests: OWN },
  {
    ...production,
    metrics: { serviceMonitor: { enabled: true } },
    processor: { autoscaling: { enabled: true, by: 'external', external: { name: 'backlog' } } },
  },
];

/**
 * Another value than the default where the type does not tell one: by path, or by the end of the
 * path.
 */
const examples = (mark: string): Record<string, unknown> => ({
  'image.digest': `sha256:${'a'.repeat(64)}`,
  'image.pullSecrets': [{ name: mark }],
  'ingress.tls': [{ secretName: mark }],
  'ingress.path': `/${mark}`,
  'httpRoute.path': `/${mark}`,
  'httpRoute.parentRefs': [{ name: mark, sectionName: 'https' }],
  'tests.email': `${mark}@example.com`,
  'smtp.from': `${mark}@example.com`,
  'smtp.clientName': `${mark}.example.com`,
  'evaluation.mailFrom': `${mark}@example.com`,
  'metrics.prometheusRule.disabled': ['PartnerIngestDeadLetters'],
  'metrics.prometheusRule.sloPercent': 99,
  'metrics.prometheusRule.runbookBaseUrl': `https://${mark}.example.com/runbooks`,
  'evaluation.loginUrl': `https://${mark}.example.com`,
  'evaluation.demoPartner.apiKey': `pik_${mark}`,
  'pods.topologySpreadConstraints': [],
  extraManifests: [`apiVersion: v1\nkind: ConfigMap\nmetadata: { name: ${mark} }\n`],
  file: '/vault/file',
  dataPath: `/${mark}`,
  minAvailable: 1,
  updateStrategy: { type: 'Recreate' },
  pod: { nodeSelector: { disk: mark } },
  mongodb: { existingSecret: mark },
  podDisruptionBudget: { minAvailable: '50%', maxUnavailable: null },
  serviceAccount: { name: mark },
  serviceMonitor: { enabled: true, interval: mark },
  securityContext: { runAsUser: 20_999 },
  startup: { periodSeconds: 21 },
  liveness: { periodSeconds: 21 },
  readiness: { periodSeconds: 21 },
  extraEnv: [{ name: mark, value: '1' }],
  resources: { requests: { cpu: mark } },
  'service.ipFamilies': ['IPv6'],
  loadBalancerSourceRanges: ['192.0.2.0/24'],
  extraVolumeMounts: [{ name: mark, mountPath: '/x' }],
  tolerations: [{ key: mark }],
});

/**
 * Switches that need other values beside them: the tests of options and of refusals show what they
 * do.
 */
const SWITCHES = [
  'allowPlainHttp',
  'service.type',
  'ingress.enabled',
  'processor.autoscaling.enabled',
  'processor.autoscaling.by',
  'evaluation.enabled',
];

/** What must change together with a value, so that the chart does not refuse it. */
const together: Record<string, Json> = { 'caBundle.existingSecret': { caBundle: {} } };
for (const component of PROCESSES) {
  together[`${component}.podDisruptionBudget.minAvailable`] = {
    [component]: {
      ...(everything as Json)[component],
      podDisruptionBudget: { maxUnavailable: null },
    },
  };
}

/** A text that no other value brings into a render, and a number. */
const markOf = ({ path }: ChartValue): string =>
  `another-${path.join('-')}-one-of-thirty-two-characters`;
const numberOf = (leaf: ChartValue): number => 20_000 + leaves.indexOf(leaf);
/** Whether what is rendered shows that `another` of this value arrived. */
const shows = (text: string, leaf: ChartValue): boolean =>
  text.includes(markOf(leaf)) || new RegExp(`\\b${numberOf(leaf)}\\b`).test(text);

/** Another value than that of `base`; where the type lets it, one that `shows` finds. */
function another(leaf: ChartValue, base: Json): unknown {
  const { path, schema, fallback } = leaf;
  const [mark, number] = [markOf(leaf), numberOf(leaf)];
  const byPath = examples(mark)[path.join('.')] ?? examples(mark)[path.at(-1) ?? ''];
  if (byPath !== undefined) return byPath;
  const choices = schema['enum'] as unknown[] | undefined;
  if (choices !== undefined) return choices.find((choice) => choice !== fallback && choice !== '');
  if (typeof fallback === 'boolean')
    return !(
      path.reduce<Json | undefined>((inside, key) => inside?.[key] as Json | undefined, base) ??
      fallback
    );
  if (typeof fallback === 'number')
    return Number(schema['maximum'] ?? number) < number ? fallback + 1 : number;
  if (typeof fallback === 'string') return mark;
  if (!Array.isArray(fallback)) return { ...(fallback as object), another: mark };
  const items = schema['items'] as { type?: string } | undefined;
  if (items?.type === 'integer') return [number];
  return items?.type === 'string'
    ? [mark]
    : [{ name: mark, namespaceSelector: { matchLabels: { a: 'b' } } }];
}

const DIGITS = `9${'0'.repeat(35)}`;
const LARGE = 12_345_678;

/** `value` with every value of `pick` changed as it says; undefined leaves one as it is. */
function withChanged(base: Json, pick: (leaf: ChartValue) => unknown): Json {
  return leaves.reduce((all, leaf) => {
    const value = pick(leaf);
    return value === undefined ? all : withValue(all, leaf.path.join('.'), value);
  }, base);
}

/** All numbers in an object, however deep. */
function numbersIn(value: unknown): number[] {
  if (typeof value === 'number') return [value];
  return typeof value === 'object' && value !== null ? Object.values(value).flatMap(numbersIn) : [];
}

/** Whether the chart refuses a text or a number at `path` beside what `base` sets. */
function clashes(base: Json, path: string): boolean {
  const type: unknown = base['service']?.type;
  return (
    (path.endsWith('existingSecret') && base['evaluation'] !== undefined) ||
    (path === 'caBundle.existingSecret' && base['caBundle'] !== undefined) ||
    (path === 'caBundle.existingConfigMap' && base['caBundle'] === undefined) ||
    (path === 'service.loadBalancerClass' && type !== 'LoadBalancer') ||
    (path === 'service.nodePort' && type === undefined)
  );
}

/** Whether text without more than digits is right there. */
const takesDigits = ({ fallback, schema }: ChartValue): boolean =>
  typeof fallback === 'string' &&
  !('enum' in schema) &&
  !('rule' in schema) &&
  new RegExp((schema['pattern'] ?? '') as string).test(DIGITS);

describe('what YAML makes of a value', () => {
  test('the file is short, and begins with what must be decided', () => {
    expect(valuesYaml.split('\n').length).toBeLessThanOrEqual(451);
    expect(valuesYaml).toMatch(/^# What you must decide/);
  });

  const misses = (text: string, where: string, name: string): boolean =>
    text
      .split('\n')
      .some(
        (line) =>
          line.includes(`'${where}'`) &&
          line.includes('missing propert') &&
          line.includes(`'${name}'`),
      );

  test('a key with nothing behind it is refused by its name, wherever it stands', async () => {
    const refs = leaves.filter(({ schema }) => String(schema['$ref']).startsWith('#/definitions'));
    const all = [...paths].filter((path) => path !== 'global');
    const deepest = Math.max(...all.map((path) => path.split('.').length));
    for (let depth = 1; depth <= deepest; depth += 1) {
      const here = all.filter((path) => path.split('.').length === depth);
      const empty = here.reduce<Json>((given, path) => withValue(given, path, null), {});
      const said = await refusal(empty);
      const nullable = leaves.filter(({ schema }) => [schema['type']].flat().includes('null'));
      const silent = here.filter((path) => {
        const [name = '', ...above] = path.split('.').toReversed();
        const where = above.length === 0 ? '' : `/${above.toReversed().join('/')}`;
        return !misses(said, where, name);
      });
      const mayBe = [...nullable].map(({ path }) => path.join('.'));
      expect(silent.filter((path) => !mayBe.includes(path))).toEqual([]);
    }
    expect(refs.length).toBe(3);
  });

  test('a number or a boolean where a text belongs is refused', async () => {
    for (const [wrong, kind] of [
      [20_261_125, 'number'],
      [true, 'boolean'],
    ] as const) {
      const texts = leaves.filter(({ fallback }) => typeof fallback === 'string');
      const said = (
        await refusal(withChanged({}, (leaf) => (texts.includes(leaf) ? wrong : undefined)))
      )
        .split('\n')
        .filter(
          (line) =>
            line.includes(`got ${kind}, want string`) || line.includes('value must be one of'),
        );
      const silent = texts.filter(
        ({ path }) => !said.some((line) => line.includes(`'/${path.join('/')}'`)),
      );
      expect(silent.map(({ path }) => path.join('.'))).toEqual([]);
    }
  });

  test('a text of digits arrives as a text, also as a name and a namespace', async () => {
    expect(leaves.filter(takesDigits).length).toBeGreaterThan(40);
    for (const base of bases) {
      const digits = withChanged(base, (leaf) =>
        takesDigits(leaf) && !clashes(base, leaf.path.join('.')) ? DIGITS : undefined,
      );
      const objects = await render(digits, { release: '123', namespace: '456' });
      const numbers = objects.flatMap((object) => numbersIn(object));
      expect(numbers.filter((number) => [123, 456, Number(DIGITS)].includes(number))).toEqual([]);
    }
  });

  test('no large number is rendered with an exponent', async () => {
    for (const base of bases) {
      const large = withChanged(base, ({ fallback, schema, path }) =>
        Number.isInteger(fallback) && !clashes(base, path.join('.'))
          ? Math.min(LARGE, Number(schema['maximum'] ?? LARGE))
          : undefined,
      );
      expect(/.*\d(?:\.\d+)?e\+\d.*/.exec(await renderText(large))?.[0]).toBeUndefined();
    }
  });
});

describe('values', () => {
  const texts = new Map<Json, Promise<string>>();
  const plain = (base: Json): Promise<string> => {
    const text = texts.get(base) ?? renderText(base);
    texts.set(base, text);
    return text;
  };

  test('every value has a description', () => {
    expect(leaves.filter(({ about }) => about === '').map(({ path }) => path.join('.'))).toEqual(
      [],
    );
  });

  /** How many maps on the way to a value `base` has. */
  const setOnTheWay = (base: Json, [first = '', ...rest]: readonly string[]): number => {
    const inside: unknown = base[first];
    return typeof inside === 'object' && inside !== null ? 1 + setOnTheWay(inside, rest) : 0;
  };

  /** Whether this value shows in any of the bases; what stood in the way where it does not. */
  async function effectOf(leaf: ChartValue): Promise<true | string> {
    const path = leaf.path.join('.');
    const problems: string[] = [];
    // Most values of the evaluation show only there; others soonest where their neighbours are set.
    const candidates = path.startsWith('evaluation')
      ? [evaluation]
      : bases.toSorted((one, other) => setOnTheWay(other, leaf.path) - setOnTheWay(one, leaf.path));
    for (const base of candidates) {
      const companions = base === everything || base === production ? together[path] : {};
      const changed = withValue({ ...base, ...companions }, path, another(leaf, base));
      const text = await renderText(changed).catch(
        (error: Error) => void problems.push(error.message.trim()),
      );
      if (typeof text === 'string' && text !== (await plain(base))) return true;
    }
    return `${path}: ${problems[0] ?? 'no effect'}`;
  }

  /**
   * Sets at once, in each base, all of `waiting` that show by themselves; returns those that did
   * not.
   */
  async function notShown(waiting: readonly ChartValue[]): Promise<readonly ChartValue[]> {
    let left = waiting;
    for (const base of bases) {
      const here = left.filter(
        (leaf) =>
          !(leaf.path.join('.') in together) &&
          shows(JSON.stringify(another(leaf, base)), leaf) &&
          bases.every((other) => setOnTheWay(other, leaf.path) <= setOnTheWay(base, leaf.path)),
      );
      if (here.length === 0) continue;
      const changed = here.reduce(
        (all, leaf) => withValue(all, leaf.path.join('.'), another(leaf, base)),
        base,
      );
      // Where the chart refuses them, each is tried alone.
      const text = await renderText(changed).catch(() => '');
      left = left.filter((leaf) => !here.includes(leaf) || !shows(text, leaf));
    }
    return left;
  }

  test('every value changes what is rendered', async () => {
    expect(leaves.length).toBeGreaterThan(150);
    const dead: string[] = [];
    // What sets a setting is seen to arrive there, below.
    const seen = [...SWITCHES, ...Object.values(settable).map(([path]) => path)];
    const alone = await notShown(leaves.filter(({ path }) => !seen.includes(path.join('.'))));
    for (const leaf of alone) {
      const effect = await effectOf(leaf);
      if (effect !== true) dead.push(effect);
    }
    expect(dead).toEqual([]);
  });

  test('every value a template asks for is there', () => {
    const asked = readdirSync(`${CHART}/templates`, { recursive: true, encoding: 'utf8' })
      .filter((name) => /\.(tpl|yaml|txt)$/.test(name))
      .flatMap((name) =>
        [
          ...readFileSync(`${CHART}/templates/${name}`, 'utf8').matchAll(
            /(?:\.Values|\$v|\$values)\.((?:\w+\.)*\w+)/g,
          ),
        ].map((match) => [name, match[1] ?? ''] as const),
      );
    expect(asked.length).toBeGreaterThan(100);
    // In a helper `$values` may be a component's.
    const openMaps = leaves.map(({ path }) => `${path.join('.')}.`);
    const known = (path: string): boolean =>
      paths.has(path) ||
      paths.has(`ingest.${path}`) ||
      openMaps.some((map) => path.startsWith(map));
    expect(asked.filter(([, path]) => !known(path))).toEqual([]);
  });
});

/**
 * Variables of the pods that are not settings of ours: Node's, OpenTelemetry's, and what those are
 * made of.
 */
const NOT_OURS = /^(NODE_EXTRA_CA_CERTS|NODE_OPTIONS|OTEL_RESOURCE_ATTRIBUTES|K8S_POD_NAME)$/;
/**
 * Left to `pods.extraEnv`: those of a place without Kubernetes around the process, and
 * OpenTelemetry's finer ones.
 */
const NOT_BY_VALUE = [
  'KUBECONFIG',
  'NODE_TLS_REJECT_UNAUTHORIZED',
  // Only with evaluation.enabled.
  'ALLOW_PUBLISHED_SECRETS',
  'OTEL_EXPORTER_OTLP_TRACES_ENDPOINT',
  'OTEL_TRACES_EXPORTER',
  'OTEL_SERVICE_NAME',
  'OTEL_SDK_DISABLED',
];

const traced = { ...production, tracing: everything.tracing };

/** Which value each setting is set by, and how a value given arrives. */
const settable: Record<string, readonly [string, unknown, string?]> = {
  MONGODB_URI: ['mongodb.file', '/mongodb'],
  MONGODB_DATABASE: ['mongodb.database', 'other'],
  REDIS_URL: ['redis.file', '/redis'],
  ALLOW_INSECURE_STORES: ['allowInsecureStores', true],
  HTTP_HOST: ['listenAddress', '::'],
  HTTP_PORT: ['ingest.port', 8081],
  HTTP_KEEP_ALIVE_SECONDS: ['proxyIdleSeconds', 600, '615'],
  ADMIN_HOST: ['listenAddress', '::'],
  ADMIN_PORT: ['adminPort', 9091],
  TRUSTED_PROXIES: ['trustedProxies', ['10.0.0.0/8', 'fd00::/8'], '10.0.0.0/8,fd00::/8'],
  RATE_LIMIT_MAX: ['ingest.rateLimit.max', 1_000_000_000],
  RATE_LIMIT_WINDOW_SECONDS: ['ingest.rateLimit.windowSeconds', 30],
  ACCEPT_TIMEOUT_MS: ['ingest.acceptTimeoutMs', 1500],
  STATUS_ENDPOINT: ['ingest.statusEndpoint', true],
  LOG_ACCEPTS: ['ingest.logAccepts', true],
  OTEL_EXPORTER_OTLP_ENDPOINT: ['tracing.endpoint', 'http://other:4318'],
  OTEL_EXPORTER_OTLP_PROTOCOL: ['tracing.protocol', 'grpc'],
  OTEL_TRACES_SAMPLER: ['tracing.sampler', 'always_on'],
  OTEL_TRACES_SAMPLER_ARG: ['tracing.sampleRatio', 0.25],
  // Never both: preStop does it. Other settings are settable, this one is zero.
  SHUTDOWN_DELAY_MS: ['ingest.preStopSeconds', 7, '0'],
  PARTNER_KEYS_SOURCE: ['partnerKeys.source', 'directory:/keys'],
  WATCH_NAMESPACES: ['partnerKeys.namespace', 'a'],
  SMTP_URL: ['smtp.file', '/smtp'],
  MAIL_FROM: ['smtp.from', 'other@example.com'],
  MAIL_CLIENT_NAME: ['smtp.clientName', 'mail.example.com'],
  LOGIN_URL: ['links.loginUrl', 'https://other.example.com'],
  LINK_SECRET: ['links.file', '/links'],
  MAIL_PER_SECOND: ['smtp.perSecond', 14],
  MAIL_CONNECTIONS: ['smtp.connections', 3],
  PROCESSOR_CONCURRENCY: ['processor.concurrency', 7],
  RETENTION_COMPLETED_DAYS: ['retention.completedDays', 21],
  RETENTION_REJECTED_DAYS: ['retention.rejectedDays', 22],
  RETENTION_UNDELIVERABLE_DAYS: ['retention.undeliverableDays', 23],
  RETENTION_MALFORMED_DAYS: ['retention.malformedDays', 24],
  RETENTION_REFUSED_DAYS: ['retention.refusedDays', 25],
  RETENTION_WITHDRAWN_DAYS: ['retention.withdrawnDays', 26],
  RETENTION_BODY_DAYS: ['retention.bodyDays', 27],
  LOG_LEVEL: ['logLevel', 'warn'],
  SMTP_TLS: ['smtp.tls', 'required'],
  MAIL_TEMPLATES: ['smtp.templatesConfigMap', 'texts', '/etc/partner-ingest/mail'],
  MAIL_FROM_NAME: ['smtp.fromName', 'Example Capital'],
  MAIL_SUPPORT_CONTACT: ['smtp.supportContact', 'help@example.com'],
  POD_NAME: ['nameOverride', 'other', '(filled in)'],
};

/** Without Secrets to read there is nothing to watch. */
const ALONE = 'PARTNER_KEYS_SOURCE';
/**
 * Set at once, because no two have the same value; a switch by itself, because its value says
 * nothing.
 */
const shared = Object.keys(settable).filter(
  (name) => name !== ALONE && settable[name]?.[1] !== true,
);
const setsOf = Object.keys(settable).map(
  (name) => [name, shared.includes(name) ? shared : [name]] as const,
);

function givenFor(names: readonly string[]): Json {
  return names.reduce<Json>((all, name) => {
    const [path = '', given] = settable[name] ?? [];
    const secret = path.replace(/\.file$/, '.existingSecret');
    return withValue(secret === path ? all : withValue(all, secret, ''), path, given);
  }, traced);
}
const allShared = givenFor(shared);

describe('settings', () => {
  let folder: string;
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'chart-'));
  });
  afterAll(() => rmSync(folder, { recursive: true }));

  const settings = describeSettings();
  const usedBy = (process: ProcessName): string[] =>
    settings
      .filter((setting) => setting.usedBy === 'all' || setting.usedBy.split(', ').includes(process))
      .map(({ name }) => name);

  test('every setting can be set by a value, and every one that is set exists', () => {
    const known = settings
      .map(({ name }) => name as string)
      .filter((name) => !NOT_BY_VALUE.includes(name));
    expect(Object.keys(settable).toSorted()).toEqual(known.toSorted());
  });

  test.each(PROCESSES)('%s is told its own settings, and no others', async (process) => {
    const told = Object.keys(environmentOf(await render(everything), process)).map((name) =>
      name.replace(/_FILE$/, ''),
    );
    expect(told.filter((name) => !NOT_OURS.test(name)).toSorted()).toEqual(
      // The operator's command runs in a pod of the processor.
      [...usedBy(process), ...(process === 'processor' ? ['WATCH_NAMESPACES'] : [])]
        .filter((name) => !NOT_BY_VALUE.includes(name))
        .toSorted(),
    );
  });

  test.each(setsOf)('%s', async (name, names) => {
    const [, given, expected] = settable[name]!;
    const objects = await render(names === shared ? allShared : givenFor(names));
    const told = PROCESSES.map((process) => environmentOf(objects, process)).flatMap(
      (environment) => environment[name] ?? environment[`${name}_FILE`] ?? [],
    );
    expect(told.length).toBeGreaterThan(0);
    for (const value of told) expect(value).toBe(expected ?? String(given));
  });

  test('the published secrets of the evaluation count there, and nowhere else', async () => {
    const { demoPartner, linkSecret } = (parse(valuesYaml) as EvaluationValues).evaluation;
    expect([
      isPublishedKey(hashApiKey(demoPartner.apiKey)),
      hasPublishedSecret(linkSecret),
    ]).toEqual([true, true]);
    for (const process of ['processor', 'controller'] as const) {
      expect(environmentOf(await render(evaluation), process)['ALLOW_PUBLISHED_SECRETS']).toBe(
        'true',
      );
      expect(
        environmentOf(await render(production), process)['ALLOW_PUBLISHED_SECRETS'],
      ).toBeUndefined();
    }
  });

  const insecure = { ...production, allowInsecureStores: true };
  test.each(PROCESSES)(
    'only the evaluation and allowInsecureStores let %s use stores without TLS',
    async (process) => {
      const allowed = async (given: Json) =>
        environmentOf(await render(given), process)['ALLOW_INSECURE_STORES'];
      expect(await allowed(production)).toBe('false');
      expect(await allowed(insecure)).toBe('true');
      expect(await allowed(evaluation)).toBe('true');
    },
  );

  test.each(PROCESSES)('the defaults of the chart are those of %s', async (process) => {
    const secrets = {
      MONGODB_URI: 'mongodb://db/?tls=true',
      REDIS_URL: 'rediss://cache',
      SMTP_URL: 'smtp://relay',
      LINK_SECRET: '0a9b1c8d2e7f3a6b4c5d9e8f7a6b5c4d',
    };
    const required = { MAIL_FROM: production.smtp.from, LOGIN_URL: production.links.loginUrl };
    for (const [name, value] of Object.entries(secrets)) writeFileSync(join(folder, name), value);
    const told = environmentOf(await render(production), process);
    const environment = Object.fromEntries(
      Object.entries(told).map(([name, value]) => [
        name,
        value.replace('/etc/partner-ingest/secrets', folder),
      ]),
    );
    const inThePod = { WATCH_NAMESPACES: told['WATCH_NAMESPACES'], POD_NAME: 'x' };
    expect(loadConfig(process, { ...environment, POD_NAME: 'x' })).toEqual(
      loadConfig(process, { ...secrets, ...required, ...inThePod }),
    );
  });
});
