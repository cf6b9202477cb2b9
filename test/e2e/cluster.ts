/**
 * Which cluster the tests run on: one without the namespaces `try` and `partner-ingest`, or a kind
 * cluster of our own where kind and a Docker engine answer.
 *
 * - E2E_KUBECONFIG: the cluster, with E2E_LOAD_IMAGE: a command that brings the image named by its
 *   last argument into it
 * - E2E_INGRESS: a command that makes the IngressClass `traefik`, by which partners come, if it is
 *   not there and the public image of Traefik cannot be pulled
 * - E2E_VALUES: for a cluster that cannot pull `mongo` and `redis`
 * - E2E_FROM: the commit to upgrade from; E2E_URL: where partners reach the Service; E2E_KEEP=1:
 *   what was installed stays
 */
import { existsSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { ROOT } from '../../tools/root.ts';
import { findProgram, succeeds } from '../../deploy/local/stores/process.ts';
import { goProgram } from '../../tools/go-program.ts';
import { run } from '../../tools/program.ts';

export const FOLDER = join(ROOT, '.run/e2e');
const KIND_CLUSTER = 'partner-ingest-e2e';
const KIND_TIMEOUT_MS = 300_000;

export interface ClusterTools {
  readonly description: string;
  readonly kubeconfig: string;
  readonly kubectl: string;
  readonly helm: string;
  /** The command without its last argument, the image. */
  readonly loadImage: readonly string[];
  readonly values: string | undefined;
  /** True if the cluster is ours to delete. */
  readonly kind: boolean;
}

/** Programs that the commands of the pages use. */
const PROGRAMS = ['bash', 'curl', 'jq', 'openssl'];

/** Returns why no cluster can be used, or undefined. */
export async function noCluster(): Promise<string | undefined> {
  for (const program of PROGRAMS) {
    if ((await findProgram(program)) === undefined) return `${program} is not on the PATH`;
  }
  if (given('E2E_KUBECONFIG') !== undefined) {
    if (given('E2E_LOAD_IMAGE') !== undefined) return undefined;
    return 'E2E_KUBECONFIG is set, but not E2E_LOAD_IMAGE, the command that brings an image into that cluster';
  }
  if ((await findProgram('kind')) !== undefined && (await dockerAnswers())) return undefined;
  return 'E2E_KUBECONFIG and E2E_LOAD_IMAGE are not set, and kind with a Docker engine is not here either';
}

/** Finds or makes the cluster; rejects with what is missing. */
export async function openCluster(log: (line: string) => void): Promise<ClusterTools> {
  const missing = await noCluster();
  if (missing !== undefined) throw new Error(missing);
  if (!(await dockerAnswers()))
    throw new Error('images are built with docker, and no Docker engine answers');
  const kubeconfig = given('E2E_KUBECONFIG');
  const values = given('E2E_VALUES');
  const rest = { helm: await goProgram('helm'), values };
  if (kubeconfig !== undefined) {
    const loadImage = (given('E2E_LOAD_IMAGE') ?? '').split(' ').filter((word) => word !== '');
    const kubectl = await findKubectl(kubeconfig);
    return {
      ...rest,
      description: `cluster of ${kubeconfig}`,
      kubeconfig,
      kubectl,
      loadImage,
      kind: false,
    };
  }
  return { ...rest, ...(await openKind(log)) };
}

async function openKind(log: (line: string) => void) {
  await mkdir(FOLDER, { recursive: true });
  const kubeconfig = join(FOLDER, 'kind.kubeconfig');
  log(`making the kind cluster ${KIND_CLUSTER}`);
  await run(
    'kind',
    ['create', 'cluster', '--name', KIND_CLUSTER, '--kubeconfig', kubeconfig, '--wait', '120s'],
    {
      timeoutMs: KIND_TIMEOUT_MS,
    },
  );
  const kubectl = await findKubectl(kubeconfig);
  const loadImage = ['kind', 'load', 'docker-image', '--name', KIND_CLUSTER];
  return {
    description: `kind cluster ${KIND_CLUSTER}`,
    kubeconfig,
    kubectl,
    loadImage,
    kind: true,
  };
}

export async function closeCluster({ kind, kubeconfig }: ClusterTools): Promise<void> {
  if (!kind) return;
  await run('kind', ['delete', 'cluster', '--name', KIND_CLUSTER, '--kubeconfig', kubeconfig], {
    timeoutMs: KIND_TIMEOUT_MS,
  });
}

/** Finds kubectl by KUBECTL, on the PATH, or in `bin` beside the kubeconfig. */
export async function findKubectl(kubeconfig: string): Promise<string> {
  const beside = join(dirname(kubeconfig), 'bin', 'kubectl');
  const found =
    given('KUBECTL') ?? (await findProgram('kubectl')) ?? (existsSync(beside) ? beside : undefined);
  if (found === undefined)
    throw new Error('there is no kubectl: neither KUBECTL nor the PATH names one');
  return found;
}

function dockerAnswers(): Promise<boolean> {
  return succeeds(['docker', 'version', '--format', '{{.Server.Version}}']);
}

function given(name: string): string | undefined {
  const value = process.env[name];
  return value === undefined || value === '' ? undefined : value;
}

/** Exits with 0 if there is a cluster, else prints why there is none. */
if (import.meta.main) {
  const missing = await noCluster();
  if (missing !== undefined) {
    console.error(`make e2e cannot run here: ${missing}`);
    process.exitCode = 1;
  }
}
