/**
 * Ends pods the hard ways: deleted by force, and a process that dies in the middle of what it does.
 */
import { pause } from '../../internal/platform/deadline.ts';
import { eventually } from '../support/wait.ts';
import { isReady, type PodInfo } from './kubectl.ts';
import { restartsOf } from './diagnosis.ts';
import { answeredByEach, metricsOf, type Component, type World } from './world.ts';

const BACK_TIMEOUT_MS = 90_000;
/** Long enough for a difference at 30 requests a second. */
const LOOK_MS = 1_500;

/**
 * Runs in the container, beside the process it ends. A container's first process cannot be sent a
 * SIGKILL from inside, and Kubernetes has none to give: `delete --force` removes the pod from the
 * API at once, but its node still says SIGTERM first. So the process is told to open its debugger
 * (SIGUSR1), and through that to crash (`process.abort`, which ends as a segmentation fault): no
 * drain, no closing, no `finally`, nothing flushed.
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

/** Resolves when the process is no more. */
export async function crash(world: World, pod: PodInfo): Promise<void> {
  // With its first process the container ends, and with it our command: how it ends says nothing.
  await world.kubectl
    .run(['exec', pod.metadata.name, '--', 'node', '--input-type=module', '--eval', CRASH], {
      timeoutMs: CRASH_TIMEOUT_MS,
    })
    .catch(() => undefined);
}

/**
 * Waits until the container that crashed has been started again and is ready; rejects where it
 * never crashed.
 */
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

/** Resolves when the pod is gone from the API; its node may not have heard of it yet. */
export async function deleteByForce(world: World, pod: PodInfo): Promise<void> {
  await world.kubectl.run(['delete', 'pod', pod.metadata.name, '--force', '--grace-period=0']);
}

/** As an SRE deletes a pod, until it has ended; `graceSeconds` is what it is given for that. */
export async function deletePod(world: World, pod: PodInfo, graceSeconds?: number): Promise<void> {
  const grace = graceSeconds === undefined ? [] : [`--grace-period=${graceSeconds}`];
  await world.kubectl.run(['delete', 'pod', pod.metadata.name, ...grace], {
    timeoutMs: BACK_TIMEOUT_MS,
  });
}

/** Waits until another pod has taken the place of a deleted one, and all are ready. */
export async function replaced(world: World, pod: PodInfo): Promise<void> {
  const pods = await world.settled();
  if (pods.some(({ metadata }) => metadata.uid === pod.metadata.uid))
    throw new Error(`${pod.metadata.name} is still there`);
}

/** Any pod of a component that is ready. */
export async function podOf(world: World, component: Component): Promise<PodInfo> {
  const pod = (await world.kubectl.pods(component)).find(isReady);
  if (pod === undefined) throw new Error(`no pod of ${component} is ready`);
  return pod;
}

/**
 * The ingest pod that answers most right now: clients keep their connections, so another may have
 * none.
 */
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

/** The controller that leads. */
export async function leader(world: World): Promise<PodInfo> {
  return eventually('a controller to lead', async () => {
    for (const pod of await world.kubectl.pods('controller')) {
      const metrics = await metricsOf(world.kubectl, pod).catch(() => '');
      if (/^partner_ingest_leader(\{[^}]*\})? 1$/m.test(metrics)) return pod;
    }
    return undefined;
  });
}
