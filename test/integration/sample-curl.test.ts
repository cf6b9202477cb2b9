/** The samples for partners in curl (docs/samples.md). */
import { testSample } from '../support/samples.ts';

await testSample('curl', ['submit.sh', 'list.sh'], 'sh');
