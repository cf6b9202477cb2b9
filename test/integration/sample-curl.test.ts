/** The sample for partners in curl (docs/samples.md). */
import { testSample } from '../support/samples.ts';

testSample('curl', 'submit.sh', 'sh');
