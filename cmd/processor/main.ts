/** The processor process: accounts and e-mails, in the background. */
import { letHeapGrow } from '../../internal/platform/small-heap.ts';
import { loadConfig } from '../../internal/settings/settings.ts';
import { run } from '../../internal/platform/run.ts';
import { PROCESSOR_DRAIN_MS } from '../../internal/processor/limits.ts';
import { startProcessor } from './wire.ts';

await run({
  name: 'processor',
  drainDeadlineMs: PROCESSOR_DRAIN_MS,
  load: () => loadConfig('processor'),
  start: async (...given) => {
    const started = await startProcessor(...given);
    letHeapGrow();
    return started;
  },
});
