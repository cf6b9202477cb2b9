/** Renders the chart for tests. */
import { readdirSync, readFileSync } from 'node:fs';
import { parse, stringify } from 'yaml';
import { ROOT } from '../../tools/root.ts';
import { goProgram } from '../../tools/go-program.ts';
import { endOf, type Ended } from '../../tools/program.ts';

export const CHART = `${ROOT}charts/partner-ingest`;
export const valuesYaml = readFileSync(`${CHART}/values.yaml`, 'utf8');
const HELM_TIMEOUT_MS = 60_000;

/** Found when first needed, because chaos reads this file without Helm. */
let program: Promise<string> | undefined;

// oxlint-disable-next-line typescript/no-explicit-any -- the shapes are Kubernetes' own, and each test looks deep into one
export type Json = { readonly [key: string]: any };

/** A rendered object; parts that tests read are untyped. */
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

/** A document of cases or values beside the tests of the chart. */
export const readYaml = (path: string): Json =>
  parse(readFileSync(`${ROOT}test/chart/${path}`, 'utf8'), { merge: true }) as Json;

export const { evaluation, production, everything } = readYaml('presets.yaml') as Readonly<
  Record<'evaluation' | 'production' | 'everything', Json>
>;

/** Returns `values` with `value` at a path such as `ingest.port`. */
export function withValue(values: Json, path: string, value: unknown): Json {
  const [first = '', ...rest] = path.split('.');
  const inside = (values[first] ?? {}) as Json;
  return {
    ...values,
    [first]: rest.length === 0 ? value : withValue(inside, rest.join('.'), value),
  };
}

/** Returns `values` with each of these, by path. */
export const withValues = (values: Json, more: Json): Json =>
  Object.entries(more).reduce<Json>((all, [path, value]) => withValue(all, path, value), values);

/** Runs `helm`; the values go to standard input for `-f -`. */
export async function helm(
  args: readonly string[],
  values: Json = {},
  other?: string,
): Promise<Ended> {
  return await endOf(other ?? (await (program ??= goProgram('helm'))), args, {
    // Helm reads YAML 1.1, where a bare `yes` is true.
    input: stringify(values, { version: '1.1' }),
    timeoutMs: HELM_TIMEOUT_MS,
    // A short run needs no garbage collection.
    env: { ...process.env, GOGC: 'off' },
  });
}

export interface RenderOptions {
  readonly release?: string;
  readonly namespace?: string;
  /** Kinds that operators have added to the cluster. */
  readonly apiVersions?: readonly string[];
  /** Values besides those given. */
  readonly files?: readonly string[];
}

const template = (
  values: Json,
  { release = 'demo', namespace = 'demo', apiVersions = [], files = [] }: RenderOptions = {},
): Promise<Ended> =>
  helm(
    [
      'template',
      release,
      CHART,
      `--namespace=${namespace}`,
      ...[...files, '-'].flatMap((file) => ['-f', file]),
      ...apiVersions.map((version) => `--api-versions=${version}`),
    ],
    values,
  );

/** Runs `helm template`; rejects with Helm's message. */
export async function renderText(values: Json, options?: RenderOptions): Promise<string> {
  const { code, out, err } = await template(values, options);
  if (code !== 0) throw new Error(err);
  return out;
}

const rendered = new WeakMap<Json, Promise<Rendered[]>>();

/** The objects of `helm template`, read as YAML 1.1 like Kubernetes (0440 is octal), and cached. */
export function render(values: Json, options?: RenderOptions): Promise<Rendered[]> {
  const known = options === undefined ? rendered.get(values) : undefined;
  const objects = known ?? renderText(values, options).then(objectsOf);
  if (options === undefined) rendered.set(values, objects);
  return objects;
}

const EXAMPLES = `${ROOT}deploy/examples/`;
export const examples = readdirSync(EXAMPLES).filter((name) => name.endsWith('.values.yaml'));

/** Renders an overlay on top of production, and other examples alone. */
export async function renderExample(
  name: string,
  values: Json,
  namespace: string,
): Promise<Rendered[]> {
  const overlay = readFileSync(EXAMPLES + name, 'utf8').startsWith('# Overlay: ');
  const names = overlay ? ['production.values.yaml', name] : [name];
  const files = names.map((file) => EXAMPLES + file);
  const { code, out, err } = await template(values, { namespace, files });
  if (code !== 0 || err !== '') throw new Error(err);
  return objectsOf(out);
}

export const manifest = (path: string): Rendered[] => objectsOf(readFileSync(ROOT + path, 'utf8'));

/** Cached, because most documents of renders are the same and reading is slow. */
const documents = new Map<string, Rendered | null>();

export function objectsOf(text: string): Rendered[] {
  return text.split(/^---$/m).flatMap((document) => {
    const object =
      documents.get(document) ?? (parse(document, { version: '1.1' }) as Rendered | null);
    documents.set(document, object);
    return object ?? [];
  });
}

/** Returns Helm's message; fails if Helm accepts `values`. */
export async function refusal(values: Json, apiVersions: readonly string[] = []): Promise<string> {
  const { code, err } = await template(values, { apiVersions });
  if (code === 0) throw new Error('Helm accepted these values');
  return err;
}

/** Returns the one object of this kind whose name ends so. */
export function one(objects: readonly Rendered[], kind: string, nameEnd = ''): Rendered {
  const [object, ...more] = objects.filter(
    (each) => each.kind === kind && each.metadata.name.endsWith(nameEnd),
  );
  if (object === undefined || more.length > 0)
    throw new Error(`${more.length === 0 ? 'no' : 'several'} ${kind} …${nameEnd}`);
  return object;
}

/** All pods, also those of Deployments and StatefulSets. */
export function podsOf(
  objects: readonly Rendered[],
): { owner: string; metadata: Json; spec: Json }[] {
  return objects.flatMap((object) => {
    const { metadata, spec } = (
      object.kind === 'Pod' ? object : (object['spec']?.template ?? {})
    ) as Json;
    return spec === undefined
      ? []
      : [{ owner: `${object.kind} ${object.metadata.name}`, metadata, spec }];
  });
}

/** The environment of a container; values that Kubernetes fills in are marked. */
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
