/**
 * A short `make chaos`: five overlapping faults on its own stores, then an audit without a
 * violation.
 */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { runChaos, type ChaosResult } from '../faults/play.ts';
import { faultsNamed } from '../faults/list.ts';
import { checkHistory } from '../proof/checker.ts';

const SEED = 20_260_101;
const SHORT = [
  'redis-emptied',
  'processor-killed',
  'mongodb-election',
  'mongodb-partitioned',
  'ingest-killed',
];
const SECONDS_PER_FAULT = 2;
const PER_SECOND = 20;
/** Given stores are not ours to kill. */
const given = [process.env['MONGODB_URI'], process.env['REDIS_URL']].some(
  (url) => url !== undefined && url !== '',
);

const stop = new AbortController();
let result: ChaosResult | undefined;
beforeAll(async () => {
  if (given) return;
  result = await runChaos({
    seed: SEED,
    faults: faultsNamed(SHORT),
    secondsPerFault: SECONDS_PER_FAULT,
    settle: 'end',
    perSecond: PER_SECOND,
    signal: stop.signal,
    log: () => undefined,
  });
});
afterAll(() => stop.abort());

(given ? test.skip : test)(
  'an emptied Redis, an election, a partition and killed processes lose and double nothing',
  () => {
    const { audit, troubles, phases } = result as ChaosResult;
    expect(phases.map(({ fault }) => fault)).toEqual(SHORT);
    expect({ violations: audit.violations, troubles }).toEqual({ violations: [], troubles: [] });
    // Writes were in doubt, so the faults happened under load.
    expect(audit.total.accepted).toBeGreaterThan(0);
    expect(audit.total.failed).toBeGreaterThan(0);
    expect(audit.total.withdrawnLanded + audit.total.withdrawnAbsent).toBeGreaterThan(0);
  },
);

(given ? test.skip : test)('a checker that is not ours finds nothing in its history', async () => {
  const { ledgerFile, audit } = result as ChaosResult;
  const { violations, partitions } = await checkHistory(ledgerFile);
  const inWindows = audit.windows.length;
  expect(violations.filter(({ model }) => model === 'look-up')).toEqual([]);
  expect(violations.length).toBeLessThanOrEqual(2 * inWindows);
  for (const number of Object.values(partitions)) expect(number).toBeGreaterThan(0);
});
