/** The samples for partners in Node (docs/samples). */
import { testSample } from '../support/samples.ts';

await testSample('Node', ['submit.mjs', 'list.mjs', 'follow.mjs'], 'node');
