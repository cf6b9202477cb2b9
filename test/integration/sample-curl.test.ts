/** The samples for partners in curl (docs/samples). */
import { testSample } from '../support/samples.ts';

await testSample('curl', ['submit.sh', 'list.sh', 'follow.sh'], 'sh');
