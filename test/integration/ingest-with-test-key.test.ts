/** The contract once more with a test key: the same answers. */
import { mode } from '../support/world.ts';

mode.test = true;
await import('./ingest.test.ts');
