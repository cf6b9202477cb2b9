/** The shared install as test files use it: commands, stores and requests. */
import { Agent, type AgentOptions } from 'node:https';
import { test } from '@jest/globals';
import { MongoClient, type Db } from 'mongodb';
import { PARTNER_LABEL, STATUS_ANNOTATION } from '../../internal/partner/key-secret.ts';
import type { ShownMail } from '../../deploy/local/maildev.ts';
import { send, type Answer } from '../support/http.ts';
import { sumOf } from '../support/metrics-text.ts';
import { eventually } from '../support/wait.ts';
import { diagnose } from './diagnosis.ts';
import { connectionTo, GATEWAY_HOST, INGRESS_HOST } from './ingress.ts';
import { Kubectl, isReady, type PodInfo } from './kubectl.ts';
import { PortForward } from './port-forward.ts';
import { addressOf } from './release.ts';
import { WORLD_VARIABLE, type Shared } from './shared.ts';

const DATABASE = 'partner_ingest';
const MONGO_TIMEOUT_MS = 10_000;
const READY_TIMEOUT_MS = 120_000;
const STEP_TIMEOUT_MS = 480_000;
/** Components with their number of pods. */
export const PODS = {
  ingest: 2,
  processor: 2,
  controller: 2,
  console: 1,
  mongodb: 1,
  redis: 1,
  mail: 1,
} as const;
export type Component = keyof typeof PODS;

export type World = Awaited<ReturnType<typeof openWorld>>;

/** A test whose failure prints the state of `namespaces`. */
export function step(
  name: string,
  run: () => Promise<void>,
  namespaces: readonly string[] = [openShared().release.namespace],
): void {
  test(
    name,
    async () => {
      try {
        await run();
      } catch (error) {
        const { tools } = openShared();
        const states = namespaces.map((namespace) => diagnose(new Kubectl(tools, namespace)));
        const trouble = error as Error;
        trouble.message = [trouble.message, ...(await Promise.all(states))].join('\n\n');
        throw trouble;
      }
    },
    STEP_TIMEOUT_MS,
  );
}

export function openShared(): Shared & { readonly kubectl: Kubectl } {
  const shared = JSON.parse(process.env[WORLD_VARIABLE] ?? '{}') as Shared;
  return { ...shared, kubectl: new Kubectl(shared.tools, shared.release.namespace) };
}

/** One of two pods is missed with a probability of 1 in 65,536. */
const IN_A_ROW = 16;

export async function openWorld() {
  const shared = openShared();
  const { kubectl, release, ingress } = shared;
  /** URLs through an Ingress and an HTTPRoute. */
  const urls: readonly string[] =
    ingress === undefined
      ? [await addressOf(kubectl, release)]
      : [INGRESS_HOST, GATEWAY_HOST].map((host) => `https://${host}`);
  const connection: AgentOptions = ingress === undefined ? {} : connectionTo(ingress);
  const agent = ingress === undefined ? {} : { agent: new Agent(connection) };
  const mongo = new PortForward(kubectl, `service/${release.fullname}-mongodb`, 27_017);
  const mail = new PortForward(kubectl, `service/${release.fullname}-mail`, 1_080);
  /** Sends one request on a new connection. */
  const post = (
    key: string | undefined,
    body: string,
    url = urls[0] ?? '',
    headers: Readonly<Record<string, string>> = {},
  ): Promise<Answer> =>
    send(url, { ...agent, ...(key === undefined ? {} : { key }), body, headers });
  return {
    ...shared,
    urls,
    connection,
    post,
    /** Applies the Secret `partner-<partner>` with these keys. */
    applyPartner: (
      partner: string,
      keys: readonly string[],
      status = 'active',
      annotations: Readonly<Record<string, string>> = {},
    ): Promise<void> =>
      kubectl.apply({
        apiVersion: 'v1',
        kind: 'Secret',
        metadata: {
          name: `partner-${partner}`,
          namespace: release.keysNamespace,
          labels: { [PARTNER_LABEL]: partner },
          annotations: { [STATUS_ANNOTATION]: status, ...annotations },
        },
        // `kubectl apply` removes entries of `data` only (docs/install.md).
        data: Object.fromEntries(
          keys.map((key, index) => [`key-${index + 1}`, Buffer.from(key).toString('base64')]),
        ),
      }),
    async deletePartner(partner: string): Promise<void> {
      await kubectl.run(`delete secret partner-${partner} --namespace ${release.keysNamespace}`);
    },
    /** Waits until every pod answers this key with `status`. */
    async answers(key: string, status: number, timeoutMs = 30_000): Promise<void> {
      const byAll = async (): Promise<boolean> => {
        for (let row = 0; row < IN_A_ROW; row += 1) {
          const answer = await post(key, '{}');
          if (answer.status !== status) return false;
        }
        return true;
      };
      await eventually(`the key to be answered ${status} by every pod`, byAll, timeoutMs);
    },
    async metric(
      component: Component,
      name: string,
      labels?: Readonly<Record<string, string>>,
    ): Promise<number> {
      const pods = (await kubectl.pods(component)).filter(isReady);
      const texts = await Promise.all(pods.map((pod) => metricsOf(kubectl, pod)));
      return texts.reduce((sum, text) => sum + sumOf(text, name, labels), 0);
    },
    /** Waits until all pods are ready and none is terminating. */
    settled: (image?: string): Promise<PodInfo[]> =>
      eventually(
        'all pods to be ready, and those of before to be gone',
        async () => {
          const pods = await kubectl.pods();
          const ours = pods.filter((pod) => Object.hasOwn(PODS, componentOf(pod)));
          const all = Object.values(PODS).reduce((sum: number, count) => sum + count, 0);
          const right = (pod: PodInfo): boolean =>
            image === undefined ||
            !['ingest', 'processor', 'controller', 'console'].includes(componentOf(pod)) ||
            pod.spec.containers[0]?.image === image;
          return ours.length === all && ours.every(isReady) && ours.every(right) ? ours : undefined;
        },
        READY_TIMEOUT_MS,
      ),
    /** Opens a connection to MongoDB for `use`. */
    async withDb<T>(use: (db: Db) => Promise<T>): Promise<T> {
      const client = new MongoClient(`mongodb://${await mongo.address()}/?directConnection=true`, {
        serverSelectionTimeoutMS: MONGO_TIMEOUT_MS,
        socketTimeoutMS: MONGO_TIMEOUT_MS,
      });
      try {
        return await use(client.db(DATABASE));
      } catch (error) {
        // The pod may be gone, so the next caller opens a new forward.
        mongo.close();
        throw error;
      } finally {
        await client.close();
      }
    },
    async mails(): Promise<ShownMail[]> {
      const signal = AbortSignal.timeout(MONGO_TIMEOUT_MS);
      try {
        const response = await fetch(`http://${await mail.address()}/api/email`, { signal });
        return (await response.json()) as ShownMail[];
      } catch (error) {
        mail.close();
        throw error;
      }
    },
    close(): void {
      mongo.close();
      mail.close();
    },
  };
}

export function componentOf(pod: PodInfo): string {
  return pod.metadata.labels['app.kubernetes.io/component'] ?? '';
}

/** Reads through the API server, which reaches pods from anywhere. */
export function metricsOf(kubectl: Kubectl, pod: PodInfo): Promise<string> {
  return kubectl.run([
    'get',
    '--raw',
    `/api/v1/namespaces/${kubectl.namespace}/pods/${pod.metadata.name}:9090/proxy/metrics`,
  ]);
}

/** Counts the answers of each ready ingest pod. */
export async function answeredByEach({ kubectl }: World): Promise<number[]> {
  const pods = (await kubectl.pods('ingest')).filter(isReady);
  const texts = await Promise.all(pods.map((pod) => metricsOf(kubectl, pod)));
  return texts.map((text) => sumOf(text, 'partner_ingest_requests_total'));
}
