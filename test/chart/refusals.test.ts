/** Every contradiction stops an installation with a message that says what to do. */
import { beforeAll, describe, expect, test } from '@jest/globals';
import { chartValues, type ChartValue } from '../../tools/chart-docs.ts';
import { addresses } from '../support/email-addresses.ts';
import {
  evaluation,
  everything,
  production,
  readYaml,
  refusal,
  render,
  valuesYaml,
  withValue,
  withValues,
  type Json,
} from '../support/chart.ts';

const { trustedProxies } = everything;
const httpRoute = { enabled: true, parentRefs: [{ name: 'public', sectionName: 'https' }] };

/** A value, and a pattern that the message must match. */
type Fault = readonly [path: string, value: unknown, says: string];
interface Group {
  readonly base: 'nothing' | keyof typeof bases;
  readonly faults: readonly Fault[];
}
const bases = { evaluation, production, everything } as const;
const { contradictions, misfits, accepted } = readYaml('refusals.yaml') as {
  readonly contradictions: Readonly<Record<string, Group>>;
  readonly misfits: readonly Fault[];
  readonly accepted: readonly { readonly base: keyof typeof bases; readonly set?: Json }[];
};

const withFaults = (base: Json, faults: readonly Fault[]): Json =>
  faults.reduce<Json>((values, [path, value]) => withValue(values, path, value), base);

describe.each(Object.entries(contradictions))('refused: %s', (_, { base, faults }) => {
  let message: string;
  beforeAll(async () => {
    message = await refusal(withFaults(base === 'nothing' ? {} : bases[base], faults));
  });
  test.each(faults)('%s: %j', (_path, _value, says) => {
    expect(message).toContain('partner-ingest cannot be installed like this');
    expect(message.split('\n')).toContainEqual(expect.stringMatching(new RegExp(says)));
  });
});

describe('refused by the schema', () => {
  let message: string;
  beforeAll(async () => {
    message = await refusal(withFaults(production, misfits));
  });
  test.each(misfits)('%s: %j', (_path, _value, says) => {
    expect(message.split('\n')).toContainEqual(expect.stringMatching(new RegExp(says)));
  });

  // Helm's regular expressions differ from those of the settings.
  test.each(addresses)(
    'the schema of the chart takes %j as an e-mail address: %s, as the settings do',
    async (address, right) => {
      const places = ['smtp.from', 'tests.email', 'evaluation.mailFrom'];
      const values = places.reduce<Json>((all, path) => withValue(all, path, address), production);
      const said = right ? await render(values).then(() => '') : await refusal(values);
      for (const place of places)
        expect(said.includes(`'/${place.replace('.', '/')}'`)).toBe(!right);
    },
  );
});

/** Maps in braces that belong to Kubernetes, and the one that every chart of a parent chart shares. */
const OPEN =
  /(?:^global|\.(?:labels|resources|updateStrategy|securityContext|containerSecurityContext|startup|liveness|readiness|matchLabels))$/;
const mapsIn = ({ path, fallback, inside }: ChartValue): string[] => {
  const isMap = typeof fallback === 'object' && fallback !== null && !Array.isArray(fallback);
  if (!isMap || Object.keys(fallback).length === 0 || OPEN.test(path.join('.'))) return [];
  return [path.join('.'), ...inside.flatMap(mapsIn)];
};

test('a misspelt key is refused at every depth', async () => {
  const maps = chartValues(valuesYaml).flatMap(mapsIn);
  expect(maps).toEqual(expect.arrayContaining(['console.oidc', 'controller.rbac', 'ingest']));
  const misspelt = maps.map((path): Fault => [`${path}.misspelt`, 1, '']);
  const told = (await refusal(withFaults(production, misspelt))).split('\n');
  const taken = maps.filter(
    (path) =>
      !told.some(
        (line) => line.includes(`'/${path.replaceAll('.', '/')}'`) && line.includes('misspelt'),
      ),
  );
  expect(taken).toEqual([]);
});

test('a kind of object that the cluster does not know is refused with a sentence', async () => {
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
  for (const { base, set = {} } of accepted)
    expect((await render(withValues(bases[base], set))).length).toBeGreaterThan(10);
});
