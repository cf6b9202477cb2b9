/** In which order the test files start: those that take longest first, so that no worker is left alone with one at the end. */
/* oxlint-disable node/no-process-env -- ORDER is for whoever runs the tests */
import { basename } from 'node:path';

interface TestFile {
  readonly path: string;
}

/** Most of them wait for timers of the service, so that they cost the others little. */
const LONGEST = [
  'ingest-crowd',
  'majority-stalled',
  'ingest-mongo',
  'processor-redis-away',
  'chaos-short',
  'processor-killed',
  'redis-failover',
  'controller-outages',
  'processor-recovery',
  'simulation',
  'openapi-fuzz',
  'values',
  'traces',
  'cli-change',
  'mail-faults',
  'redis-demoted',
  'ingest-limiter',
  'controller',
  'cli-restore',
  'withdrawals-drain',
  'withdrawals',
  'partner-holds',
];

// oxlint-disable-next-line import/no-default-export -- Jest asks for it
export default class LongestFirst {
  sort(tests: readonly TestFile[]): TestFile[] {
    const rank = new Map(tests.map((test) => [test, this.#rank(test)]));
    return tests.toSorted((one, other) => rank.get(one)! - rank.get(other)!);
  }

  #rank({ path }: TestFile): number {
    if (process.env['ORDER'] === 'random') return Math.random();
    const place = LONGEST.indexOf(basename(path, '.test.ts'));
    return place === -1 ? LONGEST.length : place;
  }

  /** Jest's own remembers how long each took; a fresh clone has nothing to remember. */
  cacheResults(): void {}
}
