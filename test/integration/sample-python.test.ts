/** The samples for partners in Python (docs/samples.md). */
import { testSample } from '../support/samples.ts';

await testSample('Python', ['submit.py', 'list.py'], 'python3');
