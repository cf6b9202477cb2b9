/** Prints pods, Events and logs after a failed step. */
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { FOLDER } from './cluster.ts';
import { isReady, type Kubectl, type PodInfo } from './kubectl.ts';

const EVENTS_SHOWN = 25;
const LOG_LINES_SHOWN = 25;

/** Prints pods and Events, and the ends of logs of unhealthy pods. Never rejects. */
export async function diagnose(kubectl: Kubectl): Promise<string> {
  const ask = (...args: string[]): Promise<string> => kubectl.run(args).catch(String);
  const pods = await kubectl.pods().catch((): PodInfo[] => []);
  const events = (await ask('get', 'events', '--sort-by=.lastTimestamp'))
    .trim()
    .split('\n')
    .slice(-EVENTS_SHOWN);
  const parts = [await ask('get', 'pods', '--output=wide'), ...events];
  for (const pod of pods) {
    if (isReady(pod) && restartsOf(pod) === 0) continue;
    const { name } = pod.metadata;
    const lines = [`--tail=${LOG_LINES_SHOWN}`, '--all-containers'];
    parts.push(`-- log of ${name}`, await ask('logs', name, ...lines));
    if (restartsOf(pod) > 0)
      parts.push(`-- its log before the restart`, await ask('logs', name, '--previous', ...lines));
  }
  return parts.join('\n');
}

/** Saves the log of every pod in `.run/e2e/logs`. Never rejects. */
export async function keepLogs(kubectl: Kubectl): Promise<void> {
  const folder = join(FOLDER, 'logs');
  await mkdir(folder, { recursive: true });
  for (const pod of await kubectl.pods().catch((): PodInfo[] => [])) {
    const { name } = pod.metadata;
    const now = await kubectl.run(['logs', name, '--all-containers']).catch(String);
    const before =
      restartsOf(pod) > 0 ? await kubectl.run(['logs', name, '--previous']).catch(String) : '';
    await writeFile(join(folder, `${name}.log`), `${before}${now}`);
  }
  await writeFile(join(folder, 'diagnosis.txt'), await diagnose(kubectl));
}

export function restartsOf(pod: PodInfo): number {
  return (pod.status.containerStatuses ?? []).reduce(
    (sum, { restartCount }) => sum + restartCount,
    0,
  );
}
