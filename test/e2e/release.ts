/** The install that all tests share. */
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
export const DEFAULT_LIMIT = 300;
const DELETE_TIMEOUT_MS = 180_000;
const KEYS_SUFFIX = '-keys';

export interface Release {
  readonly name: string;
  readonly namespace: string;
  readonly fullname: string;
  readonly keysNamespace: string;
}

/** A new name is independent of earlier runs. */
export function newRelease(): Release {
  const name = `e2e-${randomBytes(2).toString('hex')}`;
  const fullname = `${name}-partner-ingest`;
  return { name, namespace: name, fullname, keysNamespace: `${fullname}${KEYS_SUFFIX}` };
}

/**
 * Values of a first try behind Traefik, with a higher limit because all partners share one machine.
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

/** Returns Helm's standard error, which holds warnings of the API server. */
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

/** Removes a release in any state and waits until it is gone. */
export async function remove(tools: ClusterTools, release: Release): Promise<void> {
  const kubectl = new Kubectl(tools, release.namespace);
  await kubectl.helm(['uninstall', release.name, '--ignore-not-found']).catch(() => undefined);
  const namespaces = [release.namespace, release.keysNamespace];
  await kubectl.run(['delete', 'namespace', ...namespaces, '--ignore-not-found', '--wait=false']);
  await eventually(
    `${namespaces.join(' and ')} to be gone`,
    async () => {
      const left = `get namespace ${namespaces.join(' ')} --ignore-not-found --output=name`;
      return (await kubectl.run(left)) === '';
    },
    DELETE_TIMEOUT_MS,
  );
}

export async function removeAll(tools: ClusterTools, release: Release): Promise<void> {
  try {
    await remove(tools, release);
  } finally {
    await closeCluster(tools);
  }
}

/** E2E_URL, or the NodePort of a pod's node. */
export async function addressOf(kubectl: Kubectl, release: Release): Promise<string> {
  const given = process.env['E2E_URL'];
  if (given !== undefined && given !== '') return given;
  const port = await kubectl.run(
    `get service ${release.fullname}-ingest --output=jsonpath={.spec.ports[0].nodePort}`,
  );
  const [pod] = await kubectl.pods('ingest');
  return `http://${pod?.status.hostIP}:${port}`;
}
