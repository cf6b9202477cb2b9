/** A Kubernetes API for tests: namespaces, accounts, partner Secrets and Events. */
import { afterAll } from '@jest/globals';
import { spawn, type ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  CoreV1Api,
  CustomObjectsApi,
  KubeConfig,
  KubernetesObjectApi,
  type KubernetesObject,
  type V1RoleBinding,
} from '@kubernetes/client-node';
import { parse, stringify } from 'yaml';
import { freePort } from '../../deploy/local/stores/wait.ts';
import { PARTNER_LABEL, STATUS_ANNOTATION } from '../../internal/partner/key-secret.ts';
import { Kubernetes } from '../../internal/platform/process/kubernetes.ts';
import { production, render } from './chart.ts';
import { HANG_MS, eventually } from './wait.ts';

const KUBECONFIG = process.env['TEST_KUBECONFIG'] ?? '';
/** The command of the API server; a second one differs in its port only. */
const COMMAND = (process.env['TEST_API_SERVER_COMMAND'] ?? '')
  .split(' ')
  .filter((word) => word !== '');
const RBAC_KINDS = ['ServiceAccount', 'Role', 'RoleBinding'];

export interface SecretWish {
  readonly partner: string;
  readonly keys?: readonly string[];
  /** Entries as given, where `keys` is not enough. */
  readonly data?: Readonly<Record<string, string>>;
  readonly status?: string;
}

export function kubeconfigOfTests(): string {
  if (KUBECONFIG === '')
    throw new Error('TEST_KUBECONFIG is not set: it names the API server of these tests');
  return KUBECONFIG;
}

const folder = mkdtempSync(join(tmpdir(), 'cluster-'));
afterAll(() => rmSync(folder, { recursive: true }));

export class Cluster {
  readonly core: CoreV1Api;
  readonly custom: CustomObjectsApi;
  readonly objects: KubernetesObjectApi;

  constructor() {
    const kubernetes = new Kubernetes(kubeconfigOfTests());
    this.core = kubernetes.client(CoreV1Api, HANG_MS);
    this.custom = kubernetes.client(CustomObjectsApi, HANG_MS);
    const config = new KubeConfig();
    config.loadFromFile(KUBECONFIG);
    this.objects = KubernetesObjectApi.makeApiClient(config);
  }

  get server(): string {
    return serverOf(readFileSync(KUBECONFIG, 'utf8'));
  }

  async namespace(about: string): Promise<string> {
    const name = `${about}-${randomBytes(3).toString('hex')}`;
    await this.core.createNamespace({ body: { metadata: { name } } });
    return name;
  }

  /** Makes the chart's definition of `Partner`, for all tests on this API server. */
  async definePartners(): Promise<KubernetesObject> {
    const values = { ...production, partnerKeys: { partners: { enabled: true } } };
    const all = await render(values);
    const body = all.find(({ kind }) => kind === 'CustomResourceDefinition') as KubernetesObject;
    // A typed client drops fields such as x-kubernetes-validations.
    const plural = 'customresourcedefinitions';
    await this.custom.createClusterCustomObject({
      group: 'apiextensions.k8s.io',
      version: 'v1',
      plural,
      body,
    });
    return body;
  }

  /** Gives the controller of `home` the chart's rules for Secrets in `keys`. */
  async grant(home: string, keys: string): Promise<void> {
    const values = {
      ...production,
      fullnameOverride: 'partner-ingest',
      partnerKeys: { namespace: keys, createNamespace: false, partners: { enabled: true } },
    };
    const objects = await render(values, { namespace: home });
    for (const object of objects.filter(({ kind }) => RBAC_KINDS.includes(kind))) {
      await this.objects.create(object as KubernetesObject).catch(unlessStatus(409));
    }
  }

  /** A kubeconfig of the controller's account in `home`, through `server` if given. */
  async controllerKubeconfig(home: string, server = this.server): Promise<string> {
    const { status } = await this.core.createNamespacedServiceAccountToken({
      namespace: home,
      name: 'partner-ingest-controller',
      body: { spec: { audiences: [], expirationSeconds: 3_600 } },
    });
    return this.kubeconfig(server, { token: status?.token ?? '' });
  }

  /** Grants or removes the right to read Secrets in `namespace`. */
  async allowSecrets(home: string, namespace: string, allowed: boolean): Promise<void> {
    const account = new Kubernetes(await this.controllerKubeconfig(home)).client(
      CoreV1Api,
      HANG_MS,
    );
    if (allowed) await this.grant(home, namespace);
    else {
      const [apiVersion, kind] = ['rbac.authorization.k8s.io/v1', 'RoleBinding'];
      const { items } = await this.objects.list<V1RoleBinding>(apiVersion, kind, namespace);
      for (const { metadata, subjects } of items)
        if (subjects?.some((subject) => subject.namespace === home))
          await this.objects.delete({
            apiVersion,
            kind,
            metadata: { name: metadata!.name!, namespace },
          });
    }
    await eventually('the API server to know of it', async () => {
      const may = await account.listNamespacedSecret({ namespace, limit: 1 }).then(
        () => true,
        () => false,
      );
      return may === allowed;
    });
  }

  /** The administrator's kubeconfig with another address or user. */
  kubeconfig(server: string, user?: object): string {
    const config = parse(readFileSync(KUBECONFIG, 'utf8')) as {
      clusters: { cluster: { server: string } }[];
      users: { user: object }[];
    };
    config.clusters[0]!.cluster.server = server;
    if (user !== undefined) config.users[0]!.user = user;
    const file = join(folder, `${randomBytes(4).toString('hex')}.yaml`);
    writeFileSync(file, stringify(config));
    return file;
  }

  async apply(namespace: string, name: string, wish: SecretWish): Promise<void> {
    const body = {
      metadata: {
        name,
        namespace,
        labels: { [PARTNER_LABEL]: wish.partner },
        ...(wish.status === undefined ? {} : { annotations: { [STATUS_ANNOTATION]: wish.status } }),
      },
      stringData:
        wish.data ??
        Object.fromEntries((wish.keys ?? []).map((key, index) => [`key-${index + 1}`, key])),
    };
    await this.core
      .createNamespacedSecret({ namespace, body })
      .catch(unlessStatus(409, () => this.core.replaceNamespacedSecret({ namespace, name, body })));
  }

  async remove(namespace: string, name: string): Promise<void> {
    await this.core.deleteNamespacedSecret({ namespace, name });
  }

  async events(namespace: string, name: string) {
    const { items } = await this.core.listNamespacedEvent({
      namespace,
      fieldSelector: `involvedObject.name=${name}`,
    });
    return items;
  }
}

/** After a call that failed with this status runs `otherwise`; throws every other failure. */
function unlessStatus(status: number, otherwise: () => Promise<unknown> = () => Promise.resolve()) {
  return async (error: unknown): Promise<unknown> => {
    if ((error as { code?: number }).code !== status) throw error;
    return otherwise();
  };
}

function serverOf(kubeconfig: string): string {
  return (
    (parse(kubeconfig) as { clusters: { cluster: { server: string } }[] }).clusters[0]?.cluster
      .server ?? ''
  );
}

/** A second kube-apiserver on the same etcd, which a test may kill and stop. */
export type OwnApiServer = Awaited<ReturnType<typeof startOwnApiServer>>;

export async function startOwnApiServer(cluster: Cluster) {
  const port = await freePort();
  const url = `https://127.0.0.1:${port}`;
  if (COMMAND.length === 0)
    throw new Error('TEST_API_SERVER_COMMAND is not set: it starts an API server on the same etcd');
  const [program = '', ...args] = COMMAND.map((word) =>
    word.replace(/^--secure-port=.*/, `--secure-port=${port}`),
  );
  const admin = new Kubernetes(cluster.kubeconfig(url)).client(CoreV1Api, HANG_MS);
  let child: ChildProcess | undefined;
  const server = {
    url,
    running: () => child !== undefined,
    signal: (signal: NodeJS.Signals) => void child?.kill(signal),
    async kill() {
      const dying = child;
      child = undefined;
      if (dying === undefined) return;
      const gone = new Promise((resolve) => {
        dying.once('exit', resolve);
      });
      dying.kill('SIGKILL');
      await gone;
    },
    /** Starts it on the same port, without past versions. */
    async start() {
      child = spawn(program, args, { stdio: 'ignore' });
      await eventually(
        'the API server to answer',
        async () => (await admin.listNamespacedSecret({ namespace: 'default', limit: 1 })) && true,
      );
    },
  };
  await server.start();
  return server;
}
