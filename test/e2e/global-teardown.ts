/** Saves the logs and removes the install, unless E2E_KEEP=1. */
import { keepLogs } from './diagnosis.ts';
import { Kubectl } from './kubectl.ts';
import { removeAll } from './release.ts';
import { WORLD_VARIABLE, type Shared } from './shared.ts';

// oxlint-disable-next-line import/no-default-export -- Jest asks for it
export default async function globalTeardown(): Promise<void> {
  const { tools, release } = JSON.parse(process.env[WORLD_VARIABLE] ?? '{}') as Shared;
  await keepLogs(new Kubectl(tools, release.namespace));
  if (process.env['E2E_KEEP'] === '1') {
    console.error(`kept: release ${release.name} in namespace ${release.namespace}`);
    return;
  }
  await removeAll(tools, release);
}
