/** Finds the cluster, builds and loads the images, installs the chart once for all test files. */
import { rmSync } from 'node:fs';
import { messageOf } from '../../deploy/local/stores/wait.ts';
import { FOLDER, openCluster } from './cluster.ts';
import { keepLogs } from './diagnosis.ts';
import { buildAndLoad } from './images.ts';
import { openIngress, routesTo } from './ingress.ts';
import { Kubectl } from './kubectl.ts';
import { install, newRelease, removeAll } from './release.ts';
import { WORLD_VARIABLE, type Shared } from './shared.ts';

// oxlint-disable-next-line import/no-default-export -- Jest asks for it
export default async function globalSetup(): Promise<void> {
  const startedAt = performance.now();
  const log = (line: string): void => {
    console.error(`${((performance.now() - startedAt) / 1_000).toFixed(0).padStart(4)} s  ${line}`);
  };
  rmSync(FOLDER, { recursive: true, force: true });
  const tools = await openCluster(log);
  log(tools.description);
  const release = newRelease();
  try {
    const images = await buildAndLoad(tools, log);
    const ingress = await openIngress(tools, log).catch((error: unknown) => {
      log(`no ingress controller: ${messageOf(error)}`);
      return undefined;
    });
    log(`installing the chart as ${release.name}`);
    const installSaid = await install(tools, images, release);
    if (ingress !== undefined) await routesTo(new Kubectl(tools, release.namespace), release.name);
    log('installed');
    const shared: Shared = { tools, images, release, ingress, installSaid };
    process.env[WORLD_VARIABLE] = JSON.stringify(shared);
  } catch (error) {
    // Jest runs no tear-down after a failed set-up.
    await keepLogs(new Kubectl(tools, release.namespace));
    if (process.env['E2E_KEEP'] !== '1') await removeAll(tools, release);
    throw error;
  }
}
