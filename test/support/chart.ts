/**
 * The chart in tests: rendered by Helm, as objects, with the values of a first try and of a
 * production.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { parse, stringify } from 'yaml';
import { ROOT } from '../../tools/root.ts';
import { goProgram } from '../../tools/go-program.ts';
import { endOf, type Ended } from '../../tools/program.ts';

export const CHART = `${ROOT}charts/partner-ingest`;
export const valuesYaml = readFileSync(`${CHART}/values.yaml`, 'utf8');
const HELM_TIMEOUT_MS = 60_000;

/** Looked for when it is first needed: chaos reads this file, too, and has no need of Helm. */
let program: Promise<string> | undefined;

// oxlint-disable-next-line typescript/no-explicit-any -- the shapes are Kubernetes' own, and each test looks deep into one
export type Json = { readonly [key: string]: any };

/**
 * A rendered object; the parts tests look at are left untyped on purpose, they are Kubernetes' own.
 */
export interface Rendered extends Json {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly labels: Record<string, string>;
    readonly annotations?: Record<string, string>;
  };
}

/** Everything in the cluster: what `helm install` takes for a first try. */
export const evaluation = { evaluation: { enabled: true } };

/** The least a production has to say. */
export const production = {
  mongodb: { existingSecret: 'mongodb' },
  redis: { existingSecret: 'redis' },
  smtp: { existingSecret: 'smtp', from: 'welcome@example.com' },
  links: { existingSecret: 'links', loginUrl: 'https://login.example.com/activate' },
};

/** Production with an Ingress, and everything switched on that may be. */
export const everything = {
  ...production,
  trustedProxies: ['10.0.0.0/8'],
  ingress: {
    enabled: true,
    hosts: ['api.example.com'],
    tls: [{ secretName: 'tls', hosts: ['api.example.com'] }],
  },
  caBundle: { existingConfigMap: 'ca' },
  smtp: { ...production.smtp, templatesConfigMap: 'texts' },
  tracing: { endpoint: 'http://collector.monitoring:4318' },
  ingest: { autoscaling: { enabled: true } },
  processor: {
    autoscaling: {
      enabled: true,
      keda: { prometheusAddress: 'http://prometheus.monitoring:9090' },
    },
  },
  metrics: {
    podMonitor: { enabled: true },
    prometheusRule: { enabled: true, runbookBaseUrl: 'https://runbooks.example' },
    dashboard: { enabled: true },
  },
  networkPolicy: { egress: { enabled: true } },
  console: {
    oidc: {
      issuer: 'https://login.example.com',
      clientId: 'console',
      existingSecret: 'console',
      url: 'https://console.example.com',
    },
  },
  tests: { existingSecret: 'test-partner' },
};

/**
 * `values` with `value` at `path`, such as `ingest.port`; maps on the way are copied, others
 * replaced.
 */
export function withValue(values: Json, path: string, value: unknown): Json {
  const [first = '', ...rest] = path.split('.');
  const inside = (values[first] ?? {}) as Json;
  return {
    ...values,
    [first]: rest.length === 0 ? value : withValue(inside, rest.join('.'), value),
  };
}

/** Runs `helm` with the values on its standard input where an argument is `-f -`. */
export async function helm(
  args: readonly string[],
  values: Json = {},
  other?: string,
): Promise<Ended> {
  return await endOf(other ?? (await (program ??= goProgram('helm'))), args, {
    // As Helm reads it: YAML 1.1, where a bare `yes` is true.
    input: stringify(values, { version: '1.1' }),
    timeoutMs: HELM_TIMEOUT_MS,
    // A short run does not need its garbage collected.
    env: { ...process.env, GOGC: 'off' },
  });
}

const templateArgs = (release: string, namespace: string, ...files: string[]): string[] => [
  'template',
  release,
  CHART,
  `--namespace=${namespace}`,
  ...[...files, '-'].flatMap((file) => ['-f', file]),
];

export interface RenderOptions {
  readonly release?: string;
  readonly namespace?: string;
  /** What the cluster has beside Kubernetes' own kinds. */
  readonly apiVersions?: readonly string[];
}

/** The text of `helm template`; rejects with Helm's message when it refuses. */
export async function renderText(
  values: Json,
  { release = 'demo', namespace = 'demo', apiVersions = [] }: RenderOptions = {},
) {
  const args = templateArgs(release, namespace);
  const more = apiVersions.map((version) => `--api-versions=${version}`);
  const { code, out, err } = await helm([...args, ...more], values);
  if (code !== 0) throw new Error(err);
  return out;
}

const rendered = new WeakMap<Json, Promise<Rendered[]>>();

/**
 * The objects of `helm template`, read as Kubernetes reads them (YAML 1.1, where 0440 is octal);
 * once for the same object.
 */
export function render(values: Json, options?: RenderOptions): Promise<Rendered[]> {
  const known = options === undefined ? rendered.get(values) : undefined;
  const objects = known ?? renderText(values, options).then(objectsOf);
  if (options === undefined) rendered.set(values, objects);
  return objects;
}

const EXAMPLES = `${ROOT}deploy/examples/`;
/** The example values, by file name. */
export const examples = readdirSync(EXAMPLES).filter((name) => name.endsWith('.values.yaml'));

/** An example as its first line says: an overlay on top of production, anything else alone. */
export async function renderExample(
  name: string,
  values: Json,
  namespace: string,
): Promise<Rendered[]> {
  const overlay = readFileSync(EXAMPLES + name, 'utf8').startsWith('# Overlay: ');
  const files = overlay ? ['production.values.yaml', name] : [name];
  const args = templateArgs('demo', namespace, ...files.map((file) => EXAMPLES + file));
  const { code, out, err } = await helm(args, values);
  if (code !== 0 || err !== '') throw new Error(err);
  return objectsOf(out);
}

/** The objects of a file of the repository. */
export const manifest = (path: string): Rendered[] => objectsOf(readFileSync(ROOT + path, 'utf8'));

/**
 * Most documents of a render are those of another one, and reading them takes as long as rendering.
 */
const documents = new Map<string, Rendered | null>();

export function objectsOf(text: string): Rendered[] {
  return text.split(/^---$/m).flatMap((document) => {
    const object =
      documents.get(document) ?? (parse(document, { version: '1.1' }) as Rendered | null);
    documents.set(document, object);
    return object ?? [];
  });
}

/** Helm's message when it refuses `values`; fails when it does not. */
export async function refusal(values: Json, apiVersions: readonly string[] = []): Promise<string> {
  const more = apiVersions.map((version) => `--api-versions=${version}`);
  const { code, err } = await helm([...templateArgs('demo', 'demo'), ...more], values);
  if (code === 0) throw new Error('Helm accepted these values');
  return err;
}

/** The one object of this kind whose name ends so. */
export function one(objects: readonly Rendered[], kind: string, nameEnd = ''): Rendered {
  const [object, ...more] = objects.filter(
    (each) => each.kind === kind && each.metadata.name.endsWith(nameEnd),
  );
  if (object === undefined || more.length > 0)
    throw new Error(`${more.length === 0 ? 'no' : 'several'} ${kind} …${nameEnd}`);
  return object;
}

/**
 * Every pod there will be: of Deployments and StatefulSets (with the volumes they claim), and the
 * pods themselves.
 */
export function podsOf(
  objects: readonly Rendered[],
): { owner: string; metadata: Json; spec: Json }[] {
  return objects.flatMap((object) => {
    const owner = `${object.kind} ${object.metadata.name}`;
    if (object.kind === 'Pod')
      return [{ owner, metadata: object.metadata, spec: object['spec'] as Json }];
    const template = object['spec']?.template as Json | undefined;
    if (template?.['spec'] === undefined) return [];
    const claims = ((object['spec'].volumeClaimTemplates ?? []) as Json[]).map(({ metadata }) => ({
      name: metadata.name as string,
      persistentVolumeClaim: { claimName: metadata.name as string },
    }));
    const volumes = [...((template['spec'].volumes ?? []) as Json[]), ...claims];
    return [{ owner, metadata: template['metadata'], spec: { ...template['spec'], volumes } }];
  });
}

/**
 * The environment of a component's container: plain values, and a mark for those Kubernetes fills
 * in.
 */
export function environmentOf(
  objects: readonly Rendered[],
  component: string,
): Record<string, string> {
  const [container] = one(objects, 'Deployment', `-${component}`)['spec'].template.spec
    .containers as Json[];
  return Object.fromEntries(
    ((container?.['env'] ?? []) as { name: string; value?: string }[]).map(({ name, value }) => [
      name,
      value ?? '(filled in)',
    ]),
  );
}

export const chartYaml = parse(readFileSync(`${CHART}/Chart.yaml`, 'utf8')) as Json;
