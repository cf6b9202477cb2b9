/** Starts the controller process. */
import '../../internal/platform/process/small-heap.ts';
import { loadConfig } from '../../internal/settings/settings.ts';
import { run } from '../../internal/platform/run-process.ts';
import { startController } from './wire.ts';

await run({
  name: 'controller',
  load: (found) => loadConfig('controller', undefined, found),
  start: startController,
});
