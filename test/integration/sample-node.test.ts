/** The samples for partners in Node (docs/samples.md). */
import { testSample } from '../support/samples.ts';

await testSample('Node', ['submit.mjs', 'list.mjs'], 'node');
