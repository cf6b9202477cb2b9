/**
 * A real API server takes every object of the chart, in a namespace that enforces "restricted",
 * without a warning.
 */
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { randomBytes } from 'node:crypto';
import { request, type RequestOptions } from 'node:https';
import { KubeConfig } from '@kubernetes/client-node';
import {
  CHART,
  evaluation,
  everything,
  examples,
  helm,
  manifest,
  podsOf,
  production,
  render,
  renderExample,
  type Json,
  type Rendered,
} from '../support/chart.ts';
import { kubeconfigOfTests } from '../support/cluster.ts';
import { eventually } from '../support/wait.ts';
import { foreignKinds } from './foreign-kinds.ts';

const CALL_TIMEOUT_MS = 20_000;
const HTTP = { ok: 300, conflict: 409 };
const DEFINITIONS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions';
const RESTRICTED = {
  'pod-security.kubernetes.io/enforce': 'restricted',
  'pod-security.kubernetes.io/warn': 'restricted',
};

/**
 * The API server as a client without comforts sees it: warnings are headers, and those are the
 * point here.
 */
class Api {
  readonly #config = new KubeConfig();
  readonly #resources = new Map<string, Promise<Json[]>>();

  constructor(kubeconfig: string) {
    this.#config.loadFromFile(kubeconfig);
  }

  async call(
    method: string,
    path: string,
    body?: object,
  ): Promise<{ status: number; warnings: string[]; body: Json }> {
    const url = new URL(path, this.#config.getCurrentCluster()?.server);
    const options: RequestOptions = {
      method,
      headers: { 'content-type': 'application/json' },
      timeout: CALL_TIMEOUT_MS,
    };
    await this.#config.applyToHTTPSOptions(options);
    return await new Promise((resolve, reject) => {
      const sent = request(url, options, (response) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk: Buffer) => chunks.push(chunk));
        response.on('end', () =>
          resolve({
            status: response.statusCode ?? 0,
            warnings: [response.headers['warning'] ?? []].flat(),
            // An unknown group is answered with a line of text.
            body:
              response.headers['content-type'] === 'application/json'
                ? (JSON.parse(Buffer.concat(chunks).toString()) as Json)
                : {},
          }),
        );
      });
      sent.once('timeout', () => sent.destroy(new Error(`${method} ${path} took too long`)));
      sent.once('error', reject);
      sent.end(body === undefined ? undefined : JSON.stringify(body));
    });
  }

  /** Where objects of this kind are created; rejects where the server does not know the kind. */
  async pathOf({ apiVersion, kind, metadata }: Rendered): Promise<string> {
    const group = apiVersion.includes('/') ? `/apis/${apiVersion}` : `/api/${apiVersion}`;
    const known =
      this.#resources.get(group) ??
      this.call('GET', group).then(({ body }) => (body['resources'] ?? []) as Json[]);
    this.#resources.set(group, known);
    const resource = (await known).find(
      (each) => each['kind'] === kind && !(each['name'] as string).includes('/'),
    );
    if (resource === undefined) throw new Error(`the API server knows no ${kind} of ${apiVersion}`);
    return resource['namespaced'] === true
      ? `${group}/namespaces/${metadata.namespace}/${resource['name']}`
      : `${group}/${resource['name']}`;
  }

  /** What the server says of creating this, without doing it; unknown fields are errors. */
  async tryOut(path: string, object: object) {
    const { status, warnings, body } = await this.call(
      'POST',
      `${path}?dryRun=All&fieldValidation=Strict`,
      object,
    );
    return { status, warnings, message: status < HTTP.ok ? '' : String(body['message']) };
  }
}

describe('an API server', () => {
  const api = new Api(kubeconfigOfTests());
  const home = `chart-${randomBytes(3).toString('hex')}`;
  const keys = `${home}-keys`;
  const partnerKeys = { namespace: keys };
  const names = [home, keys];

  beforeAll(async () => {
    for (const name of names) {
      const { status } = await api.call('POST', '/api/v1/namespaces', {
        metadata: { name, labels: RESTRICTED },
      });
      expect(status).toBeLessThan(HTTP.ok);
    }
    for (const definition of foreignKinds) {
      const { status, body } = await api.call('POST', DEFINITIONS, definition);
      if (status !== HTTP.conflict)
        expect([definition.metadata.name, status, body['message']]).toEqual([
          definition.metadata.name,
          201,
          undefined,
        ]);
    }
    for (const { spec } of foreignKinds) {
      const path = `/apis/${spec.group}/${spec.versions[0]?.name}/namespaces/${home}/${spec.names.plural}`;
      await eventually(
        `${spec.names.kind} to be served`,
        async () => (await api.call('GET', path)).status < HTTP.ok,
      );
    }
  });
  afterAll(async () => {
    for (const name of names) await api.call('DELETE', `/api/v1/namespaces/${name}`);
  });

  /** What the server has to say of these objects; empty when it takes them all. */
  async function refusedOf(objects: readonly Rendered[]): Promise<Record<string, object>> {
    const seen: Record<string, object> = {};
    for (const object of objects) {
      // The namespace of the keys is there already, so that what is in it can be tried out.
      if (object.kind === 'Namespace') continue;
      const result = await api.tryOut(await api.pathOf(object), object);
      if (result.status >= HTTP.ok || result.warnings.length > 0)
        seen[`${object.kind} ${object.metadata.name}`] = result;
    }
    return seen;
  }

  test.each(Object.entries({ evaluation, production, everything }))(
    'takes all of %s without a warning',
    async (_, values) => {
      const objects = await render({ ...values, partnerKeys }, { namespace: home });
      expect(objects.length).toBeGreaterThan(15);
      expect(await refusedOf(objects)).toEqual({});
    },
  );

  test.each(examples)('takes all of the example %s without a warning', async (name) => {
    expect(await refusedOf(await renderExample(name, { partnerKeys }, home))).toEqual({});
  });

  test.each(['argocd-application.yaml', 'secrets.yaml', 'partner-key.yaml'])(
    'takes %s',
    async (name) => {
      const objects = manifest(`deploy/examples/${name}`).map((object) => ({
        ...object,
        metadata: { ...object.metadata, namespace: home },
      }));
      expect(objects.length).toBeGreaterThan(0);
      expect(await refusedOf(objects)).toEqual({});
    },
  );

  test('an upgrade that switches autoscaling on, and the next one, keep the pods there are', async () => {
    const run = async (command: string, values: Json): Promise<void> => {
      const args = [
        command,
        'scaled',
        CHART,
        '--kubeconfig',
        kubeconfigOfTests(),
        '--namespace',
        home,
        '-f',
        '-',
      ];
      const { code, err } = await helm(args, {
        ...production,
        partnerKeys: { ...partnerKeys, createNamespace: false },
        ...values,
      });
      expect({ code, err: code === 0 ? '' : err }).toEqual({ code: 0, err: '' });
    };
    const path = `/apis/apps/v1/namespaces/${home}/deployments/scaled-partner-ingest-ingest`;
    const replicas = async (): Promise<unknown> =>
      (await api.call('GET', path)).body['spec'].replicas;
    await run('install', { ingest: { replicaCount: 4 } });
    expect(await replicas()).toBe(4);
    const autoscaling = { enabled: true, minReplicas: 3 };
    await run('upgrade', { ingest: { replicaCount: 4, autoscaling } });
    expect(await replicas()).toBe(4);
    // As the autoscaler does it.
    const scale = (await api.call('GET', `${path}/scale`)).body;
    await api.call('PUT', `${path}/scale`, { ...scale, spec: { replicas: 7 } });
    await run('upgrade', { ingest: { replicaCount: 4, autoscaling }, logLevel: 'warn' });
    expect(await replicas()).toBe(7);
  });

  test.each(Object.entries({ evaluation, everything }))(
    'admits every pod of %s where "restricted" is enforced',
    async (_, values) => {
      const pods = podsOf(await render({ ...values, partnerKeys }, { namespace: home }));
      expect(pods.length).toBeGreaterThanOrEqual(4);
      for (const { owner, metadata, spec } of pods) {
        // Where no ServiceAccount was made for real yet, its name may not be asked for.
        const pod = {
          metadata: { labels: metadata['labels'], generateName: 'try-' },
          spec: { ...spec, serviceAccountName: 'default' },
        };
        const result = await api.tryOut(`/api/v1/namespaces/${home}/pods`, pod);
        expect({ owner, ...result }).toEqual({ owner, status: 201, warnings: [], message: '' });
      }
    },
  );

  test('refuses a pod that is less careful, so the above means something', async () => {
    const [pod] = podsOf(
      await render(
        { ...production, partnerKeys, pods: { containerSecurityContext: { capabilities: null } } },
        { namespace: home },
      ),
    );
    const result = await api.tryOut(`/api/v1/namespaces/${home}/pods`, {
      metadata: { generateName: 'try-' },
      spec: { ...pod?.spec, serviceAccountName: 'default' },
    });
    expect(result.status).toBe(403);
    expect(result.message).toContain('violates PodSecurity "restricted');
  });

  test('refuses a field it does not know, so a misspelt one would be told', async () => {
    const [object] = (await render(production, { namespace: home })).filter(
      ({ kind }) => kind === 'Deployment',
    );
    const path = await api.pathOf(object as Rendered);
    const result = await api.tryOut(path, {
      ...object,
      spec: { ...object?.['spec'], replicass: 1 },
    });
    expect(result.message).toContain('replicass');
  });
});
