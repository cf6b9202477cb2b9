/** Starts the ingest process. */
import { loadConfig } from '../../internal/settings/settings.ts';
import { run } from '../../internal/platform/run-process.ts';
import { startIngest } from './wire.ts';

await run({
  name: 'ingest',
  load: (found) => loadConfig('ingest', undefined, found),
  start: startIngest,
});
