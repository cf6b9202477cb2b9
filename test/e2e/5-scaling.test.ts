/**
 * A HorizontalPodAutoscaler on the records that wait: processors grow with a backlog of which Redis
 * knows nothing. Refuses a cluster that has external metrics of its own.
 */
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect } from '@jest/globals';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { SUBMISSIONS, type SubmissionRecord } from '../../internal/submission/submission.ts';
import { makeCertificate } from '../support/certificate.ts';
import { newApplication, requestIdOf } from '../support/world.ts';
import { soon } from './kubectl.ts';
import { note } from './measured.ts';
import { chartArgs, valuesFor } from './release.ts';
import { openWorld, PODS, step, type World } from './world.ts';

const ADAPTER = 'metrics-adapter';
const API_SERVICE = 'v1beta1.external.metrics.k8s.io';
const METRIC = 'partner_ingest_waiting';
const MOST_PODS = 4;
const PER_POD = 100;
const BACKLOG = PER_POD * MOST_PODS + PER_POD / 2;
const AT_ONCE = 25;
/** The autoscaler looks every 15 s, the controller counts as often; twice that to start pods. */
const SCALES_WITHIN_MS = 180_000;
const TIMEOUT_MS = 480_000;

let world: World;
let free = false;
beforeAll(async () => {
  world = await openWorld();
  const there = await world.kubectl.run([
    'get',
    'apiservice',
    API_SERVICE,
    '--ignore-not-found',
    '--output=name',
  ]);
  if (there !== '') throw new Error(`the cluster has external metrics of its own: ${there.trim()}`);
  free = true;
  await startAdapter();
}, 60_000);
afterAll(async () => {
  if (free) {
    await world.kubectl.run(['delete', 'apiservice', API_SERVICE, '--ignore-not-found']);
    await world.kubectl.run([
      'delete',
      'pod,service,configmap,secret',
      `--selector=app=${ADAPTER}`,
    ]);
  }
  world.close();
}, 60_000);

async function startAdapter(): Promise<void> {
  const { kubectl, images, release } = world;
  const { namespace } = release;
  const labels = { app: ADAPTER };
  const metadata = { name: ADAPTER, namespace, labels };
  const folder = await mkdtemp(join(tmpdir(), 'metrics-adapter-'));
  makeCertificate(folder);
  const [key, certificate] = await Promise.all(
    ['key.pem', 'ca.pem'].map((file) => readFile(join(folder, file))),
  );
  await rm(folder, { recursive: true });
  const script = await readFile(join(import.meta.dirname, `${ADAPTER}.ts`), 'utf8');
  await kubectl.apply(
    { apiVersion: 'v1', kind: 'ConfigMap', metadata, data: { [`${ADAPTER}.ts`]: script } },
    {
      apiVersion: 'v1',
      kind: 'Secret',
      type: 'kubernetes.io/tls',
      metadata,
      data: { 'tls.key': key?.toString('base64'), 'tls.crt': certificate?.toString('base64') },
    },
    {
      apiVersion: 'v1',
      kind: 'Service',
      metadata,
      spec: { selector: labels, ports: [{ port: 443, targetPort: 6_443 }] },
    },
    {
      apiVersion: 'v1',
      kind: 'Pod',
      metadata,
      spec: {
        securityContext: {
          runAsNonRoot: true,
          runAsUser: 65_532,
          seccompProfile: { type: 'RuntimeDefault' },
        },
        containers: [
          {
            name: ADAPTER,
            image: `${images.repository}:${images.current}`,
            command: [
              'node',
              `/script/${ADAPTER}.ts`,
              METRIC,
              `${release.fullname}-controller-metrics`,
            ],
            readinessProbe: { tcpSocket: { port: 6_443 } },
            securityContext: { allowPrivilegeEscalation: false, capabilities: { drop: ['ALL'] } },
            volumeMounts: [
              { name: 'script', mountPath: '/script' },
              { name: 'tls', mountPath: '/tls' },
            ],
          },
        ],
        volumes: [
          { name: 'script', configMap: { name: ADAPTER } },
          { name: 'tls', secret: { secretName: ADAPTER } },
        ],
      },
    },
    {
      apiVersion: 'apiregistration.k8s.io/v1',
      kind: 'APIService',
      metadata: { name: API_SERVICE },
      spec: {
        group: 'external.metrics.k8s.io',
        version: 'v1beta1',
        groupPriorityMinimum: 100,
        versionPriority: 100,
        insecureSkipTLSVerify: true,
        service: { namespace, name: ADAPTER, port: 443 },
      },
    },
  );
}

function upgrade(more: object): Promise<unknown> {
  const values = { ...valuesFor(world.images, world.images.current), ...more };
  return world.kubectl.helmAndWait(
    ['upgrade', world.release.name, ...chartArgs(world.tools)],
    [values],
  );
}

async function processorsReady(count: number): Promise<void> {
  const path = '--output=jsonpath={.spec.replicas} {.status.replicas} {.status.readyReplicas}';
  await soon(
    `${count} processors`,
    async () => {
      const said = await world.kubectl.run([
        'get',
        'deployment',
        `${world.release.fullname}-processor`,
        path,
      ]);
      if (said !== `${count} ${count} ${count}`) throw new Error(`wanted, there, ready: ${said}`);
      return true;
    },
    SCALES_WITHIN_MS,
  );
}

/** The ids of `count` applications, each answered 202. */
async function submitMany(count: number): Promise<string[]> {
  const key = newApiKey();
  await world.applyPartner('scaling', [key]);
  await world.answers(key, 202);
  const ids: string[] = [];
  while (ids.length < count) {
    const bodies = Array.from({ length: Math.min(AT_ONCE, count - ids.length) }, () =>
      JSON.stringify(newApplication()),
    );
    const answers = await Promise.all(bodies.map((body) => world.post(key, body)));
    expect(answers.map(({ status }) => status)).toEqual(bodies.map(() => 202));
    ids.push(...answers.map(requestIdOf));
  }
  return ids;
}

step(
  'processors grow with the records that wait, also when Redis is emptied, and shrink when all are mailed',
  async () => {
    const { kubectl, release } = world;
    const scaleMail = (replicas: number): Promise<string> =>
      kubectl.run(['scale', 'statefulset', `${release.fullname}-mail`, `--replicas=${replicas}`]);
    await upgrade({
      processor: {
        autoscaling: {
          enabled: true,
          by: 'external',
          minReplicas: PODS.processor,
          maxReplicas: MOST_PODS,
          jobsPerPod: PER_POD,
          external: { name: METRIC },
          behavior: { scaleDown: { stabilizationWindowSeconds: 0 } },
        },
      },
      networkPolicy: { metricsFrom: [{ podSelector: { matchLabels: { app: ADAPTER } } }] },
    });
    await scaleMail(0);
    const ids = await submitMany(BACKLOG);
    await kubectl.run(['exec', `${release.fullname}-redis-0`, '--', 'redis-cli', 'FLUSHALL']);
    const emptiedAt = performance.now();
    const seconds = (): string => ((performance.now() - emptiedAt) / 1_000).toFixed(0);
    await processorsReady(MOST_PODS);
    const jobs = await world.metric('processor', 'partner_ingest_queue_jobs');
    const grown = `${MOST_PODS} processors after ${seconds()} s, with ${jobs} jobs in Redis for ${BACKLOG} records`;
    await scaleMail(1);
    await soon(
      'all to be completed',
      async () => {
        const done = await world.withDb((db) =>
          db
            .collection<SubmissionRecord>(SUBMISSIONS)
            .countDocuments({ _id: { $in: ids }, state: 'completed' }),
        );
        if (done < ids.length) throw new Error(`${done} are`);
        return true;
      },
      SCALES_WITHIN_MS,
    );
    const completed = seconds();
    await processorsReady(PODS.processor);
    note(
      'a backlog whose Redis was emptied',
      `${grown}; all completed after ${completed} s, ${PODS.processor} again after ${seconds()} s`,
    );
    await upgrade({});
    await world.settled();
  },
  TIMEOUT_MS,
);
