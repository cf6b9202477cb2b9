import { expect, test } from '@jest/globals';
import { Claim, CLAIM_FRESH_MS } from './claim.ts';

const record = { _id: 'req_1', state: 'recorded', version: 1 } as const;

/** A claim with a clock that the test moves and a store whose answers it sets. */
function newClaim(renew: () => Promise<boolean>, stopped = (): boolean => false) {
  const time = { ms: 1_000 };
  const claim = new Claim(record, time.ms, {
    store: { renew },
    clock: { now: () => new Date(time.ms), monotonicMs: () => time.ms },
    holds: { has: stopped },
  });
  claim.release();
  return { claim, time };
}

test('work that an operator stops has no further effect, even while the claim is valid', async () => {
  let stopped = false;
  const { claim } = newClaim(
    () => Promise.resolve(true),
    () => stopped,
  );
  expect(claim.mayGoOn).toBe(true);
  stopped = true;
  expect(claim.mayGoOn).toBe(false);
  expect(await claim.confirm()).toBe(false);
});

test('if the store is away, confirm throws once the claim is not fresh', async () => {
  const { claim, time } = newClaim(() => Promise.reject(new Error('away')));
  await claim.confirm();
  time.ms += CLAIM_FRESH_MS + 1;
  await expect(claim.confirm()).rejects.toThrow('away');
  expect(claim.signal.aborted).toBe(false);
});
