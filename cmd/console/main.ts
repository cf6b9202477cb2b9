/** Starts the console process. */
import '../../internal/platform/process/small-heap.ts';
import { loadConfig } from '../../internal/settings/settings.ts';
import { run } from '../../internal/platform/run-process.ts';
import { startConsoleProcess } from './wire.ts';

await run({
  name: 'console',
  load: (found) => loadConfig('console', undefined, found),
  start: startConsoleProcess,
});
