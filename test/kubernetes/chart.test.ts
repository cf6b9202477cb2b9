/** A real API server takes every object of the chart, in a namespace that enforces "restricted", without a warning. */
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { randomBytes } from 'node:crypto';
import { request, type RequestOptions } from 'node:https';
import { KubeConfig } from '@kubernetes/client-node';
import {
  describeWithHelm,
  evaluation,
  everything,
  podsOf,
  production,
  render,
  type Json,
  type Rendered,
} from '../support/chart.ts';

const KUBECONFIG = process.env['TEST_KUBECONFIG'];
const CALL_TIMEOUT_MS = 20_000;
const HTTP = { ok: 300 };
/** Kinds of operators that a bare API server does not have. */
const FOREIGN = ['PodMonitor', 'ServiceMonitor', 'PrometheusRule', 'ScaledObject', 'HTTPRoute'];
const RESTRICTED = {
  'pod-security.kubernetes.io/enforce': 'restricted',
  'pod-security.kubernetes.io/warn': 'restricted',
};

/** The API server as a client without comforts sees it: warnings are headers, and those are the point here. */
class Api {
  readonly #config = new KubeConfig();
  readonly #resources = new Map<string, Promise<Json[]>>();

  constructor() {
    this.#config.loadFromFile(KUBECONFIG ?? '');
  }

  async call(method: string, path: string, body?: object): Promise<{ status: number; warnings: string[]; body: Json }> {
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

  /** Where objects of this kind are created; undefined where the server does not know the kind. */
  async pathOf({ apiVersion, kind, metadata }: Rendered): Promise<string | undefined> {
    const group = apiVersion.includes('/') ? `/apis/${apiVersion}` : `/api/${apiVersion}`;
    const known =
      this.#resources.get(group) ?? this.call('GET', group).then(({ body }) => (body['resources'] ?? []) as Json[]);
    this.#resources.set(group, known);
    const resource = (await known).find((each) => each['kind'] === kind && !(each['name'] as string).includes('/'));
    if (resource === undefined) return undefined;
    return resource['namespaced'] === true
      ? `${group}/namespaces/${metadata.namespace}/${resource['name']}`
      : `${group}/${resource['name']}`;
  }

  /** What the server says of creating this, without doing it; unknown fields are errors. */
  async tryOut(path: string, object: object) {
    const { status, warnings, body } = await this.call('POST', `${path}?dryRun=All&fieldValidation=Strict`, object);
    return { status, warnings, message: status < HTTP.ok ? '' : String(body['message']) };
  }
}

const describeWithBoth = KUBECONFIG === undefined ? describe.skip : describeWithHelm;

describeWithBoth('an API server', () => {
  const api = new Api();
  const home = `chart-${randomBytes(3).toString('hex')}`;
  const keys = `${home}-keys`;
  const partnerKeys = { namespaces: [keys] };
  const names = [home, keys];

  beforeAll(async () => {
    for (const name of names) {
      const { status } = await api.call('POST', '/api/v1/namespaces', { metadata: { name, labels: RESTRICTED } });
      expect(status).toBeLessThan(HTTP.ok);
    }
  }, 60_000);
  afterAll(async () => {
    for (const name of names) await api.call('DELETE', `/api/v1/namespaces/${name}`);
  }, 60_000);

  test.each(Object.entries({ evaluation, production, everything }))(
    'takes all of %s without a warning',
    async (_, values) => {
      const objects = await render({ ...values, partnerKeys }, { namespace: home });
      const seen: Record<string, object> = {};
      let accepted = 0;
      for (const object of objects) {
        const path = await api.pathOf(object);
        if (path === undefined) {
          expect(FOREIGN).toContain(object.kind);
          continue;
        }
        // The namespace of the keys is there already, so that what is in it can be tried out.
        if (object.kind === 'Namespace') continue;
        const result = await api.tryOut(path, object);
        if (result.status >= HTTP.ok || result.warnings.length > 0)
          seen[`${object.kind} ${object.metadata.name}`] = result;
        accepted += 1;
      }
      expect(seen).toEqual({});
      expect(accepted).toBeGreaterThan(15);
    },
    60_000,
  );

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
    60_000,
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
    const [object] = (await render(production, { namespace: home })).filter(({ kind }) => kind === 'Deployment');
    const path = await api.pathOf(object as Rendered);
    const result = await api.tryOut(path ?? '', { ...object, spec: { ...object?.['spec'], replicass: 1 } });
    expect(result.message).toContain('replicass');
  });
});
