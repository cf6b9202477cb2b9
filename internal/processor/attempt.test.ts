import { afterEach, expect, jest, test } from '@jest/globals';
import type { WorkerMoves } from '../submission/worker-moves.ts';
import { CLAIM_MS } from '../submission/submission.ts';
import { Claim, CLAIM_TRUSTED_MS, CLAIM_FRESH_MS } from './attempt.ts';

const record = { _id: 'req_1', state: 'recorded', version: 1 } as const;
const claims: Claim[] = [];

/** A claim with a clock that the test moves and a store whose answers it sets. */
function newClaim(renew: () => Promise<boolean>, stopped = (): boolean => false) {
  const time = { ms: 1_000 };
  const claim = new Claim(record, time.ms, {
    store: { renew } as unknown as WorkerMoves,
    clock: { now: () => new Date(time.ms), monotonicMs: () => time.ms },
    holds: { has: stopped },
  });
  claims.push(claim);
  return { claim, time };
}

afterEach(() => {
  for (const claim of claims.splice(0)) claim.release();
  jest.useRealTimers();
});

test('a worker that was frozen past its claim stops without asking the store', () => {
  const { claim, time } = newClaim(() => Promise.resolve(true));
  time.ms += CLAIM_TRUSTED_MS;
  expect(claim.held).toBe(true);
  time.ms += 1;
  expect(claim.held).toBe(false);
});

test('work that an operator stops has no further effect, even while the claim is valid', async () => {
  let stopped = false;
  const { claim } = newClaim(
    () => Promise.resolve(true),
    () => stopped,
  );
  expect(claim.held).toBe(true);
  stopped = true;
  expect(claim.held).toBe(false);
  expect(await claim.confirm()).toBe(false);
});

test('if the store is away, confirm throws once the claim is not fresh', async () => {
  const { claim, time } = newClaim(() => Promise.reject(new Error('away')));
  await claim.confirm();
  time.ms += CLAIM_FRESH_MS + 1;
  await expect(claim.confirm()).rejects.toThrow('away');
  expect(claim.signal.aborted).toBe(false);
});

test('a claim is renewed in time until it is released', async () => {
  jest.useFakeTimers();
  let renewals = 0;
  const { claim } = newClaim(() => {
    renewals += 1;
    return Promise.resolve(true);
  });
  await jest.advanceTimersByTimeAsync(CLAIM_MS);
  expect(renewals).toBe(3);
  claim.release();
  await jest.advanceTimersByTimeAsync(CLAIM_MS);
  expect(renewals).toBe(3);
});
