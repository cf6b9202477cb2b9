/** The ingest process: the door partners POST to. */
import { loadConfig } from '../../internal/platform/config.ts';
import { run } from '../../internal/platform/run.ts';
import { startIngest } from './wire.ts';

await run({ name: 'ingest', load: () => loadConfig('ingest'), start: startIngest });
