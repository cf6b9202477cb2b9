/** The samples for partners in Python (docs/samples). */
import { testSample } from '../support/samples.ts';

await testSample('Python', ['submit.py', 'list.py', 'follow.py'], 'python3');
