/** Traefik in front of the cluster: an Ingress, an HTTPRoute and TLS. */
import { readFileSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import type { AgentOptions } from 'node:https';
import { join } from 'node:path';
import { parseAllDocuments } from 'yaml';
import { ROOT } from '../../tools/root.ts';
import { run } from '../../tools/program.ts';
import { makeCertificate } from '../support/certificate.ts';
import { read } from '../support/pages.ts';
import { FOLDER, type ClusterTools } from './cluster.ts';
import { Kubectl, type PodInfo } from './kubectl.ts';

/** The command may first have to compile the controller. */
const COMMAND_TIMEOUT_MS = 1_200_000;
const READY = '--timeout=180s';
const APPLY_TIMEOUT_MS = 60_000;
const MANIFEST = 'test/e2e/traefik.yaml';
/** The name that install.md prints. */
export const INGRESS_HOST = 'partners.example.com';
export const GATEWAY_HOST = 'gateway.example.com';
const SECRET = 'partners-tls';
const [KEY_FILE, CERTIFICATE_FILE] = ['key.pem', 'ca.pem'];

export interface Ingress {
  /** The node that has the controller's ports 80 and 443. */
  readonly address: string;
  /** The certificate is its own authority. */
  readonly caFile: string;
}

/** Installs the controller if it is missing, by E2E_INGRESS or from its public image. */
export async function openIngress(
  tools: ClusterTools,
  log: (line: string) => void,
): Promise<Ingress> {
  const kubectl = new Kubectl(tools, 'ingress');
  const command = (process.env['E2E_INGRESS'] ?? '').split(' ').filter((word) => word !== '');
  const [program, ...args] = command;
  if (program !== undefined) {
    log(command.join(' '));
    await run(program, args, { timeoutMs: COMMAND_TIMEOUT_MS });
  } else if ((await kubectl.run(['get', 'ingressclass', 'traefik', '--ignore-not-found'])) === '') {
    log('installing Traefik from its public image');
    const [kinds = '', ...objects] = parseAllDocuments(read(MANIFEST)).map(
      (document) => document.toJS() as unknown,
    );
    await kubectl.run(['apply', '--server-side', `--filename=${(kinds as Kinds).data.kinds}`], {
      timeoutMs: APPLY_TIMEOUT_MS,
    });
    await kubectl.apply(...(objects as object[]));
  }
  await kubectl.run(['rollout', 'status', 'deployment/traefik', READY], { timeoutMs: 200_000 });
  const pods = await kubectl.json<{ items: PodInfo[] }>(['get', 'pods', '--selector=app=traefik']);
  const address = pods.items[0]?.status.hostIP ?? '';
  await mkdir(FOLDER, { recursive: true });
  makeCertificate(FOLDER, [`DNS:${INGRESS_HOST}`, `DNS:${GATEWAY_HOST}`]);
  return { address, caFile: join(FOLDER, CERTIFICATE_FILE) };
}

/** The manifest begins with a ConfigMap that names the kinds of the Gateway API. */
interface Kinds {
  readonly data: { readonly kinds: string };
}

/** Resolves every name to the controller and trusts its certificate. */
export function connectionTo({ address, caFile }: Ingress): AgentOptions {
  return {
    ca: readFileSync(caFile),
    lookup: (_name, { all }, done) =>
      all === true ? done(null, [{ address, family: 4 }]) : done(null, address, 4),
  };
}

export function certificateIn(namespace: string): object {
  const text = (file: string): string => readFileSync(join(FOLDER, file), 'utf8');
  return {
    apiVersion: 'v1',
    kind: 'Secret',
    metadata: { name: SECRET, namespace },
    type: 'kubernetes.io/tls',
    stringData: { 'tls.crt': text(CERTIFICATE_FILE), 'tls.key': text(KEY_FILE) },
  };
}

export async function removeRoutes(kubectl: Kubectl): Promise<void> {
  await kubectl.run(['delete', 'ingresses,httproutes,gateways', '--all']);
  await kubectl.run(['delete', 'secret', SECRET]);
}

/** Makes an Ingress, an HTTPRoute and a Gateway for the release. */
export async function routesTo(kubectl: Kubectl, release: string): Promise<void> {
  const templates = ['ingress', 'httproute'].map(
    (name) => `--show-only=templates/ingest/${name}.yaml`,
  );
  const examples = ['production', 'traefik'].map(
    (name) => `--values=${join(ROOT, `deploy/examples/${name}.values.yaml`)}`,
  );
  const chart = join(ROOT, 'charts/partner-ingest');
  const render = async (template: string | undefined, values: object): Promise<string> =>
    (
      await kubectl.helm(
        ['template', release, chart, template ?? '', ...examples, '--values=-'],
        [values],
      )
    ).out;
  const listener = { name: 'https', port: 8_443, protocol: 'HTTPS', hostname: GATEWAY_HOST };
  const gateway = {
    apiVersion: 'gateway.networking.k8s.io/v1',
    kind: 'Gateway',
    metadata: { name: 'public', namespace: kubectl.namespace },
    spec: {
      gatewayClassName: 'traefik',
      listeners: [{ ...listener, tls: { certificateRefs: [{ name: SECRET }] } }],
    },
  };
  const httpRoute = {
    enabled: true,
    parentRefs: [{ name: 'public', sectionName: 'https' }],
    hostnames: [GATEWAY_HOST],
  };
  const rendered = await Promise.all([
    render(templates[0], {}),
    render(templates[1], { ingress: { enabled: false }, httpRoute }),
  ]);
  const objects = rendered.flatMap((text) =>
    parseAllDocuments(text).map((document) => document.toJS() as object),
  );
  await kubectl.apply(certificateIn(kubectl.namespace), gateway, ...objects);
}
