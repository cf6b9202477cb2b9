/** `make test SECOND_TRY=1`: prints the files that failed, if a busy machine may be the reason. They run again, alone. */
import { readFileSync } from 'node:fs';
import { basename } from 'node:path';

/** A fault that shows in more files than these is no accident. */
const MOST = 4;
/** Whatever they find once is a broken promise, on any machine. */
const NEVER = ['architecture', 'chaos-short', 'privacy', 'simulation'];

interface JestResults {
  readonly testResults: readonly { readonly name: string; readonly status: string }[];
}

const results = JSON.parse(readFileSync(process.argv[2] ?? '', 'utf8')) as JestResults;
const failed = results.testResults.filter(({ status }) => status === 'failed').map(({ name }) => name);
if (failed.length <= MOST && !failed.some((file) => NEVER.includes(basename(file, '.test.ts')))) {
  console.log(failed.join(' '));
}
