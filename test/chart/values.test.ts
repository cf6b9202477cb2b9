/** Compares values, templates and settings in both directions. */
import { beforeAll, describe, expect, test } from '@jest/globals';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parse } from 'yaml';
import { hashApiKey, hasPublishedSecret, isPublishedKey } from '../../internal/partner/api-key.ts';
import { chartValues, type ChartValue } from '../../tools/chart-docs.ts';
import { describeSettings } from '../../tools/describe-settings.ts';
import { loadConfig, type ProcessName } from '../../internal/settings/settings.ts';
import {
  CHART,
  environmentOf,
  evaluation,
  everything,
  objectsOf,
  production,
  readYaml,
  render,
  renderText,
  valuesYaml,
  withValue,
  type Json,
} from '../support/chart.ts';
import { folderOfFile } from '../support/folder.ts';

const PROCESSES: readonly ProcessName[] = ['ingest', 'processor', 'controller', 'console'];
const leavesOf = (value: ChartValue): ChartValue[] =>
  value.inside.length === 0 ? [value] : value.inside.flatMap(leavesOf);
const leaves = chartValues(valuesYaml).flatMap(leavesOf);
const paths = new Set(
  leaves.flatMap(({ path }) => path.map((_, end) => path.slice(0, end + 1).join('.'))),
);

const OWN = { mongodb: { existingSecret: 'own' } };

/** Together these renders use every value. */
const bases: readonly Json[] = [
  everything,
  evaluation,
  production,
  {
    ...everything,
    ingress: {},
    httpRoute: { enabled: true, parentRefs: [{ name: 'public', sectionName: 'https' }] },
    metrics: { serviceMonitor: { enabled: true } },
    caBundle: {},
  },
  {
    ...production,
    allowPlainHttp: true,
    service: { type: 'LoadBalancer' },
    processor: { autoscaling: { enabled: true, by: 'external', external: { name: 'backlog' } } },
  },
  {
    ...production,
    ingest: { ...OWN, podDisruptionBudget: { minAvailable: 2, maxUnavailable: null } },
    processor: OWN,
    controller: OWN,
  },
];

function numbersIn(value: unknown): number[] {
  if (typeof value === 'number') return [value];
  return typeof value === 'object' && value !== null ? Object.values(value).flatMap(numbersIn) : [];
}

const DIGITS = `9${'0'.repeat(31)}`;
const LARGE = 12_340_000;
/** A different extreme for each value: digits as text, or a large number. */
function extreme({ fallback, schema }: ChartValue, index: number): unknown {
  if (Number.isInteger(fallback))
    return Number(schema['maximum'] ?? Infinity) < LARGE * 2 ? undefined : LARGE + index;
  const text = `${DIGITS}${String(index).padStart(4, '0')}`;
  const isAnyText =
    typeof fallback === 'string' &&
    !('enum' in schema) &&
    !('rule' in schema) &&
    new RegExp((schema['pattern'] ?? '') as string).test(text);
  return isAnyText ? text : undefined;
}
const extremes = leaves.map((leaf, index) => ({
  path: leaf.path.join('.'),
  value: extreme(leaf, index),
}));

/** Says whether the chart refuses both a text and a number at `path`. */
function clashes(base: Json, path: string): boolean {
  const type: unknown = base['service']?.type;
  return (
    path === 'ingest.podDisruptionBudget.maxUnavailable' ||
    (path.endsWith('existingSecret') && base['evaluation'] !== undefined) ||
    (path === 'caBundle.existingSecret' && base['caBundle'] !== undefined) ||
    (path === 'caBundle.existingConfigMap' && base['caBundle'] === undefined) ||
    (path === 'service.loadBalancerClass' && type !== 'LoadBalancer') ||
    (path === 'service.nodePort' && type === undefined)
  );
}

describe('values', () => {
  test('the file is short, and begins with the values that must be set', () => {
    expect(valuesYaml.split('\n').length).toBeLessThanOrEqual(471);
    expect(valuesYaml).toMatch(/^# What you must decide/);
  });

  test('every value has a description', () => {
    expect(leaves.filter(({ about }) => about === '').map(({ path }) => path.join('.'))).toEqual(
      [],
    );
  });

  let texts: readonly string[];
  beforeAll(async () => {
    texts = await Promise.all(
      bases.map((base) => {
        const values = extremes.reduce(
          (all, { path, value }) =>
            value === undefined || clashes(base, path) ? all : withValue(all, path, value),
          base,
        );
        return renderText(values, { release: '123', namespace: '456' });
      }),
    );
  });

  test('digits stay text, and large numbers get no exponent', () => {
    for (const text of texts) {
      expect(/.*\d(?:\.\d+)?e\+\d.*/.exec(text)?.[0]).toBeUndefined();
      expect(text).toContain(DIGITS);
      const numbers = objectsOf(text).flatMap((object) => numbersIn(object));
      const fromTexts = (number: number): boolean => number >= Number(DIGITS);
      expect(numbers.filter((one) => [123, 456].includes(one) || fromTexts(one))).toEqual([]);
    }
  });

  test('templates use every value, and only values that exist', () => {
    const templates = readdirSync(`${CHART}/templates`, { recursive: true, encoding: 'utf8' })
      .filter((name) => /\.(tpl|yaml|txt)$/.test(name))
      .map((name) => [name, readFileSync(`${CHART}/templates/${name}`, 'utf8')] as const);
    const asked = templates.flatMap(([name, text]) =>
      [...text.matchAll(/(?:\.Values|\$v|\$values)\.((?:\w+\.)*\w+)/g)].map(
        ([, path = '']) => [name, path] as const,
      ),
    );
    expect(asked.length).toBeGreaterThan(100);
    // In a helper `$values` may belong to a component.
    const openMaps = leaves.map(({ path }) => `${path.join('.')}.`);
    const known = (path: string): boolean =>
      paths.has(path) ||
      paths.has(`ingest.${path}`) ||
      openMaps.some((map) => path.startsWith(map));
    expect(asked.filter(([, path]) => !known(path))).toEqual([]);

    const names = new Set(templates.flatMap(([, text]) => text.match(/\w+/g) ?? []));
    const unasked = leaves
      .map(({ path }) => path)
      .filter((path) => !path.every((name) => names.has(name)));
    expect(unasked).toEqual([]);
  });
});

/** Variables of Node and OpenTelemetry, and those they are made of. */
const NOT_OURS = /^(NODE_EXTRA_CA_CERTS|NODE_OPTIONS|OTEL_\w+|K8S_POD_NAME)$/;
/** Set by `pods.extraEnv`: settings for other places than Kubernetes. */
const NOT_BY_VALUE = [
  'KUBECONFIG',
  'CONSOLE_PORT',
  'NODE_TLS_REJECT_UNAUTHORIZED',
  'ALLOW_PUBLISHED_SECRETS',
  'HTTPS_PROXY',
  'HTTP_PROXY',
  'NO_PROXY',
];

type Settable = readonly [path: string, given: unknown, arrives?: string];
const settable = readYaml('settings.yaml') as Readonly<Record<string, Settable>>;

describe('settings', () => {
  const folder = folderOfFile();

  const settings = describeSettings();
  const usedBy = (process: ProcessName): string[] =>
    settings
      .filter((setting) => setting.usedBy === 'all' || setting.usedBy.split(', ').includes(process))
      .map(({ name }) => name);

  test('every setting has a value, and the chart sets only settings that exist', () => {
    const known = settings
      .map(({ name }) => name as string)
      .filter((name) => !NOT_BY_VALUE.includes(name));
    expect(Object.keys(settable).toSorted()).toEqual(known.toSorted());
  });

  // The register is where orders are given from.
  const isKeptFrom = (process: string, name: string): boolean =>
    name === 'ERASURE_REGISTER_KEY' && ['ingest', 'controller'].includes(process);

  test.each(PROCESSES)(
    '%s gets its own settings, those of the command, and no others',
    async (process) => {
      const told = Object.keys(environmentOf(await render(everything), process)).map((name) =>
        name.replace(/_FILE$/, ''),
      );
      expect(told.filter((name) => !NOT_OURS.test(name)).toSorted()).toEqual(
        [...new Set([...usedBy(process), ...usedBy('cli')])]
          .filter((name) => !NOT_BY_VALUE.includes(name))
          .filter((name) => !isKeptFrom(process, name))
          .toSorted(),
      );
    },
  );

  test('a value arrives in the setting', async () => {
    const set = (values: Json, [path, given]: Settable): Json => {
      const secret = path.replace(/\.file$/, '.existingSecret');
      return withValue(secret === path ? values : withValue(values, secret, ''), path, given);
    };
    // Keys from a folder have no namespace.
    const { PARTNER_KEYS_SOURCE: source, STATUS_ENDPOINT: lookUps, ...others } = settable;
    const told = async (values: Json): Promise<Json> => {
      const objects = await render(values);
      return Object.assign({}, ...PROCESSES.map((process) => environmentOf(objects, process)));
    };
    const all = await told(Object.values(others).reduce(set, production));
    const wanted = Object.entries(others).map(([name, [path, given, arrives]]) => [
      /(\.existingSecret|[.a-z]file)$/i.test(path) ? `${name}_FILE` : name,
      arrives ?? String(given),
    ]);
    expect(all).toMatchObject(Object.fromEntries(wanted));
    // The probe needs look-ups.
    const apart = await told([source!, lookUps!].reduce(set, production));
    expect(apart).toMatchObject({ PARTNER_KEYS_SOURCE: source![1], STATUS_ENDPOINT: 'false' });
  });

  test.each(PROCESSES)(
    '%s gets the variables of OpenTelemetry where it is traced',
    async (process) => {
      const tracing = { endpoint: 'http://other:4318', protocol: 'grpc' };
      const sampled = { ...tracing, sampler: 'always_on', sampleRatio: 0.25 };
      const told = environmentOf(await render({ ...production, tracing: sampled }), process);
      const { OTEL_RESOURCE_ATTRIBUTES: _, ...variables } = Object.fromEntries(
        Object.entries(told).filter(([name]) => name.startsWith('OTEL_')),
      );
      const expected = {
        OTEL_EXPORTER_OTLP_ENDPOINT: 'http://other:4318',
        OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc',
        OTEL_TRACES_SAMPLER: 'always_on',
        OTEL_TRACES_SAMPLER_ARG: '0.25',
      };
      expect(variables).toEqual(['ingest', 'processor'].includes(process) ? expected : {});
    },
  );

  test('the published secrets are accepted only in an evaluation', () => {
    const { demoPartner, testApiKey, linkSecret } = (parse(valuesYaml) as Json)['evaluation'];
    expect([
      isPublishedKey(hashApiKey(demoPartner.apiKey)),
      isPublishedKey(hashApiKey(testApiKey)),
      hasPublishedSecret(linkSecret),
    ]).toEqual([true, true, true]);
  });

  test.each(PROCESSES)('only an evaluation lets %s run without TLS', async (process) => {
    const known = ['ingest', 'console'].includes(process) ? undefined : 'true';
    expect(environmentOf(await render(evaluation), process)).toMatchObject({
      ALLOW_INSECURE_STORES: 'true',
      ...(known === undefined ? {} : { ALLOW_PUBLISHED_SECRETS: known }),
    });
    const inProduction = environmentOf(await render(production), process);
    expect(inProduction['ALLOW_INSECURE_STORES']).toBe('false');
    expect(inProduction['ALLOW_PUBLISHED_SECRETS']).toBeUndefined();
  });

  test.each(PROCESSES)('the defaults of the chart are those of %s', async (process) => {
    const secrets = {
      MONGODB_URI: 'mongodb://db/?tls=true',
      REDIS_URL: 'rediss://cache',
      SMTP_URL: 'smtp://relay',
      LINK_SECRET: '0a9b1c8d2e7f3a6b4c5d9e8f7a6b5c4d',
    };
    const required = {
      MAIL_FROM: production['smtp'].from,
      LOGIN_URL: production['links'].loginUrl,
    };
    for (const [name, value] of Object.entries(secrets)) writeFileSync(join(folder, name), value);
    const told = environmentOf(await render(production), process);
    const environment = Object.fromEntries(
      Object.entries(told).map(([name, value]) => [
        name,
        value.replace('/etc/partner-ingest/secrets', folder),
      ]),
    );
    const { WATCH_NAMESPACES, PROCESSOR_REPLICAS, CONSOLE_COMMAND, CONSOLE_PROCESSES } = told;
    const { CONSOLE_NAME } = told;
    const ofInstallation = { WATCH_NAMESPACES, PROCESSOR_REPLICAS, CONSOLE_COMMAND, CONSOLE_NAME };
    const inThePod = { ...ofInstallation, CONSOLE_PROCESSES, POD_NAME: 'x' };
    expect(loadConfig(process, { ...environment, POD_NAME: 'x' })).toEqual(
      loadConfig(process, { ...secrets, ...required, ...inThePod }),
    );
  });
});
