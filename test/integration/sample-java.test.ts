/** The samples for partners in Java (docs/samples). */
import { testSample } from '../support/samples.ts';

await testSample('Java', ['Submit.java', 'ListAll.java', 'Follow.java'], 'java');
