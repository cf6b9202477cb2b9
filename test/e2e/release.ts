/**
 * The one install that all tests share: its names, its values, how it is installed, upgraded and
 * taken away.
 */
import { randomBytes } from 'node:crypto';
import { join, resolve } from 'node:path';
import { ROOT } from '../../tools/root.ts';
import { eventually } from '../support/wait.ts';
import { closeCluster, type ClusterTools } from './cluster.ts';
import type { Images } from './images.ts';
import { Kubectl } from './kubectl.ts';

export const CHART = join(ROOT, 'charts/partner-ingest');
const RESTRICTED = {
  'pod-security.kubernetes.io/enforce': 'restricted',
  'pod-security.kubernetes.io/warn': 'restricted',
};
/** Requests of one address in a minute. */
export const DEFAULT_LIMIT = 300;
const DELETE_TIMEOUT_MS = 180_000;
const KEYS_SUFFIX = '-keys';

export interface Release {
  readonly name: string;
  readonly namespace: string;
  /** Prefix of the names of all objects. */
  readonly fullname: string;
  readonly keysNamespace: string;
}

/** A name nobody has had, so that what a run left behind does not matter to the next. */
export function newRelease(): Release {
  const name = `e2e-${randomBytes(2).toString('hex')}`;
  const fullname = `${name}-partner-ingest`;
  return { name, namespace: name, fullname, keysNamespace: `${fullname}${KEYS_SUFFIX}` };
}

/**
 * As somebody would install it for a first try, behind an ingress controller whose pods have an
 * address of the private ranges. All partners are one machine here, so that a load needs another
 * limit than the default one.
 */
export function valuesFor(images: Images, tag: string, limit = 1_000_000): object {
  return {
    image: { repository: images.repository, tag },
    evaluation: { enabled: true, mail: { image: images.mail } },
    service: { type: 'NodePort' },
    allowPlainHttp: true,
    trustedProxies: ['10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16'],
    proxyIdleSeconds: 90,
    ingest: { rateLimit: { max: limit } },
  };
}

/** Arguments of install and upgrade; the values go to standard input. */
export function chartArgs({ values }: ClusterTools): string[] {
  return [
    CHART,
    ...(values === undefined ? [] : ['--values', resolve(ROOT, values)]),
    '--values',
    '-',
  ];
}

export async function createNamespace(kubectl: Kubectl): Promise<void> {
  await kubectl.apply({
    apiVersion: 'v1',
    kind: 'Namespace',
    metadata: { name: kubectl.namespace, labels: RESTRICTED },
  });
}

/**
 * Makes the namespace and installs; gives what Helm said on standard error, where warnings of the
 * API server stand.
 */
export async function install(
  tools: ClusterTools,
  images: Images,
  release: Release,
): Promise<string> {
  const kubectl = new Kubectl(tools, release.namespace);
  await createNamespace(kubectl);
  const values = valuesFor(images, images.current, DEFAULT_LIMIT);
  return (await kubectl.helmAndWait(['install', release.name, ...chartArgs(tools)], [values])).err;
}

/** Takes away whatever is left, in any state; waits until it is gone. */
export async function remove(tools: ClusterTools, release: Release): Promise<void> {
  const kubectl = new Kubectl(tools, release.namespace);
  await kubectl.helm(['uninstall', release.name, '--ignore-not-found']).catch(() => undefined);
  const namespaces = [release.namespace, release.keysNamespace];
  await kubectl.run(['delete', 'namespace', ...namespaces, '--ignore-not-found', '--wait=false']);
  await eventually(
    `${namespaces.join(' and ')} to be gone`,
    async () =>
      (await kubectl.run([
        'get',
        'namespace',
        ...namespaces,
        '--ignore-not-found',
        '--output=name',
      ])) === '',
    DELETE_TIMEOUT_MS,
  );
}

/** Takes the release away, and the cluster where we made it. */
export async function removeAll(tools: ClusterTools, release: Release): Promise<void> {
  try {
    await remove(tools, release);
  } finally {
    await closeCluster(tools);
  }
}

/** The Service without an ingress controller: E2E_URL, else the NodePort on the node of a pod. */
export async function addressOf(kubectl: Kubectl, release: Release): Promise<string> {
  const given = process.env['E2E_URL'];
  if (given !== undefined && given !== '') return given;
  const port = await kubectl.run([
    'get',
    'service',
    `${release.fullname}-ingest`,
    '--output=jsonpath={.spec.ports[0].nodePort}',
  ]);
  const [pod] = await kubectl.pods('ingest');
  return `http://${pod?.status.hostIP}:${port}`;
}
