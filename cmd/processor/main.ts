/** Starts the processor process. */
import { letHeapGrow } from '../../internal/platform/process/small-heap.ts';
import { loadConfig } from '../../internal/settings/settings.ts';
import { run } from '../../internal/platform/run-process.ts';
import { PROCESSOR_DRAIN_MS } from '../../internal/processor/line.ts';
import { startProcessor } from './wire.ts';

await run({
  name: 'processor',
  drainDeadlineMs: PROCESSOR_DRAIN_MS,
  load: (found) => loadConfig('processor', undefined, found),
  start: async (config, tools) => {
    await startProcessor(config, tools);
    letHeapGrow();
  },
});
