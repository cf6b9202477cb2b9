/**
 * What a test file works with: the shared install, both commands, the stores behind them, and
 * requests as partners send them.
 */
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
/** A bound against a hang. */
const STEP_TIMEOUT_MS = 480_000;
/** How many components the release has pods of, each with how many pods. */
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

export interface World extends Shared {
  readonly kubectl: Kubectl;
  /** As partners reach it: through an Ingress, and through an HTTPRoute. */
  readonly urls: readonly string[];
  /** How a client of Node gets there. */
  readonly connection: AgentOptions;
  /** One request of a partner, on a connection of its own. */
  post(
    key: string | undefined,
    body: string,
    url?: string,
    headers?: Readonly<Record<string, string>>,
  ): Promise<Answer>;
  /** Makes the Secret `partner-<partner>` what it says, by `kubectl apply`. */
  applyPartner(partner: string, keys: readonly string[], status?: string): Promise<void>;
  deletePartner(partner: string): Promise<void>;
  /** Waits until requests with this key are answered so by every pod. */
  answers(key: string, status: number, timeoutMs?: number): Promise<void>;
  /** Sum of a metric over the pods of a component that answer. */
  metric(
    component: Component,
    name: string,
    labels?: Readonly<Record<string, string>>,
  ): Promise<number>;
  /** Waits until all pods of the release are ready and none is going; gives them. */
  settled(image?: string): Promise<PodInfo[]>;
  /** A connection to MongoDB for the length of `use`. */
  withDb<T>(use: (db: Db) => Promise<T>): Promise<T>;
  /** What MailDev keeps, oldest first. */
  mails(): Promise<ShownMail[]>;
  close(): void;
}

/** A test whose failure shows the state of `namespaces`: by default that of the shared install. */
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

/**
 * Pods that say the same on this many connections in a row are all of them: 1 in 65,536 that one
 * of two was never asked.
 */
const IN_A_ROW = 16;

export async function openWorld(): Promise<World> {
  const shared = openShared();
  const { kubectl, release, ingress } = shared;
  const urls =
    ingress === undefined
      ? [await addressOf(kubectl, release)]
      : [INGRESS_HOST, GATEWAY_HOST].map((host) => `https://${host}`);
  const connection = ingress === undefined ? {} : connectionTo(ingress);
  const agent = ingress === undefined ? {} : { agent: new Agent(connection) };
  const mongo = new PortForward(kubectl, `service/${release.fullname}-mongodb`, 27_017);
  const mail = new PortForward(kubectl, `service/${release.fullname}-mail`, 1_080);
  const world: World = {
    ...shared,
    urls,
    connection,
    post: (key, body, url = urls[0] ?? '', headers = {}) =>
      send(url, { ...agent, ...(key === undefined ? {} : { key }), body, headers }),
    applyPartner: (partner, keys, status) =>
      kubectl.apply({
        apiVersion: 'v1',
        kind: 'Secret',
        metadata: {
          name: `partner-${partner}`,
          namespace: release.keysNamespace,
          labels: { [PARTNER_LABEL]: partner },
          annotations: { [STATUS_ANNOTATION]: status ?? 'active' },
        },
        // `data`, because `kubectl apply` takes an entry away only from what it was told as such
        // (docs/install.md).
        data: Object.fromEntries(
          keys.map((key, index) => [`key-${index + 1}`, Buffer.from(key).toString('base64')]),
        ),
      }),
    async deletePartner(partner) {
      await kubectl.run([
        'delete',
        'secret',
        `partner-${partner}`,
        '--namespace',
        release.keysNamespace,
      ]);
    },
    async answers(key, status, timeoutMs = 30_000) {
      const byAll = async (): Promise<boolean> => {
        for (let row = 0; row < IN_A_ROW; row += 1) {
          const answer = await world.post(key, '{}');
          if (answer.status !== status) return false;
        }
        return true;
      };
      await eventually(`the key to be answered ${status} by every pod`, byAll, timeoutMs);
    },
    async metric(component, name, labels) {
      const pods = (await kubectl.pods(component)).filter(isReady);
      const texts = await Promise.all(pods.map((pod) => metricsOf(kubectl, pod)));
      return texts.reduce((sum, text) => sum + sumOf(text, name, labels), 0);
    },
    settled: (image) =>
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
    async withDb(use) {
      const client = new MongoClient(`mongodb://${await mongo.address()}/?directConnection=true`, {
        serverSelectionTimeoutMS: MONGO_TIMEOUT_MS,
        socketTimeoutMS: MONGO_TIMEOUT_MS,
      });
      try {
        return await use(client.db(DATABASE));
      } catch (error) {
        // The pod it went to may be gone; the next caller gets a new way.
        mongo.close();
        throw error;
      } finally {
        await client.close();
      }
    },
    async mails() {
      const signal = AbortSignal.timeout(MONGO_TIMEOUT_MS);
      try {
        const response = await fetch(`http://${await mail.address()}/api/email`, { signal });
        return (await response.json()) as ShownMail[];
      } catch (error) {
        mail.close();
        throw error;
      }
    },
    close() {
      mongo.close();
      mail.close();
    },
  };
  return world;
}

export function componentOf(pod: PodInfo): string {
  return pod.metadata.labels['app.kubernetes.io/component'] ?? '';
}

/** Through the API server, which reaches pods wherever the tests run. */
export function metricsOf(kubectl: Kubectl, pod: PodInfo): Promise<string> {
  return kubectl.run([
    'get',
    '--raw',
    `/api/v1/namespaces/${kubectl.namespace}/pods/${pod.metadata.name}:9090/proxy/metrics`,
  ]);
}

/** Answers each ingest pod that is ready has given so far, in the order of `kubectl get pods`. */
export async function answeredByEach({ kubectl }: World): Promise<number[]> {
  const pods = (await kubectl.pods('ingest')).filter(isReady);
  const texts = await Promise.all(pods.map((pod) => metricsOf(kubectl, pod)));
  return texts.map((text) => sumOf(text, 'partner_ingest_requests_total'));
}
