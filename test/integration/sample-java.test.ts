/** The samples for partners in Java (docs/samples.md). */
import { testSample } from '../support/samples.ts';

await testSample('Java', ['Submit.java', 'ListAll.java'], 'java');
