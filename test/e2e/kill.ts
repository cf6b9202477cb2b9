/** Ends pods by force, and crashes processes inside them. */
import { pause } from '../../internal/platform/process/deadline.ts';
import { eventually } from '../support/wait.ts';
import { isReady, type PodInfo } from './kubectl.ts';
import { restartsOf } from './diagnosis.ts';
import { answeredByEach, metricsOf, type Component, type World } from './world.ts';

const BACK_TIMEOUT_MS = 90_000;
/** Counts differ visibly after this time at 30 requests a second. */
const LOOK_MS = 1_500;

/**
 * Runs in the container. A container's first process ignores SIGKILL from inside, so this opens its
 * debugger (SIGUSR1) and calls `process.abort` through it: nothing is drained or flushed.
 */
const CRASH = `
process.kill(1, 'SIGUSR1');
let found;
while (found === undefined) {
  found = await fetch('http://127.0.0.1:9229/json/list').then((answer) => answer.json()).catch(() => undefined);
  if (found === undefined) await new Promise((resolve) => setTimeout(resolve, 20));
}
const debug = new WebSocket(found[0].webSocketDebuggerUrl);
debug.onopen = () =>
  debug.send(JSON.stringify({ id: 1, method: 'Runtime.evaluate', params: { expression: 'process.abort()' } }));
await new Promise((resolve) => { debug.onclose = resolve; debug.onerror = resolve; });
`;
const CRASH_TIMEOUT_MS = 20_000;

export async function crash(world: World, pod: PodInfo): Promise<void> {
  // The container ends with its first process, and our command with it.
  await world.kubectl
    .run(['exec', pod.metadata.name, '--', 'node', '--input-type=module', '--eval', CRASH], {
      timeoutMs: CRASH_TIMEOUT_MS,
    })
    .catch(() => undefined);
}

/** Waits until the crashed container is ready again; rejects if it did not crash. */
export async function startedAgain(world: World, pod: PodInfo): Promise<void> {
  await eventually(
    `${pod.metadata.name} to have been started again`,
    async () => {
      const now = (await world.kubectl.pods()).find(
        ({ metadata }) => metadata.uid === pod.metadata.uid,
      );
      return now !== undefined && restartsOf(now) > restartsOf(pod) && isReady(now);
    },
    BACK_TIMEOUT_MS,
  );
}

/** Resolves once the API has removed the pod; its node may stop it later. */
export async function deleteByForce(world: World, pod: PodInfo): Promise<void> {
  await world.kubectl.run(['delete', 'pod', pod.metadata.name, '--force', '--grace-period=0']);
}

export async function deletePod(world: World, pod: PodInfo, graceSeconds?: number): Promise<void> {
  const grace = graceSeconds === undefined ? [] : [`--grace-period=${graceSeconds}`];
  await world.kubectl.run(['delete', 'pod', pod.metadata.name, ...grace], {
    timeoutMs: BACK_TIMEOUT_MS,
  });
}

/** Waits until the deleted pod is replaced and all pods are ready. */
export async function replaced(world: World, pod: PodInfo): Promise<void> {
  const pods = await world.settled();
  if (pods.some(({ metadata }) => metadata.uid === pod.metadata.uid))
    throw new Error(`${pod.metadata.name} is still there`);
}

export async function podOf(world: World, component: Component): Promise<PodInfo> {
  const pod = (await world.kubectl.pods(component)).find(isReady);
  if (pod === undefined) throw new Error(`no pod of ${component} is ready`);
  return pod;
}

/** Returns the ingest pod with most answers, because clients keep their connections. */
export async function busiest(world: World): Promise<PodInfo> {
  const pods = (await world.kubectl.pods('ingest')).filter(isReady);
  const before = await answeredByEach(world);
  await pause(LOOK_MS);
  const answered = (await answeredByEach(world)).map(
    (count, index) => count - (before[index] ?? 0),
  );
  const pod = pods[answered.indexOf(Math.max(...answered))];
  if (pod === undefined) throw new Error('no pod of ingest is ready');
  return pod;
}

export async function leader(world: World): Promise<PodInfo> {
  return eventually('a controller to lead', async () => {
    for (const pod of await world.kubectl.pods('controller')) {
      const metrics = await metricsOf(world.kubectl, pod).catch(() => '');
      if (/^partner_ingest_leader(\{[^}]*\})? 1$/m.test(metrics)) return pod;
    }
    return undefined;
  });
}
