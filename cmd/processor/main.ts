/** The processor process: accounts and e-mails, in the background. */
import '../../internal/platform/small-heap.ts';
import { loadConfig } from '../../internal/platform/config.ts';
import { run } from '../../internal/platform/run.ts';
import { startProcessor } from './wire.ts';

await run({ name: 'processor', load: () => loadConfig('processor'), start: startProcessor });
