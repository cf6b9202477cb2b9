/**
 * Two operators at once: what one does from a view that the other has changed does nothing, and the
 * trail says so.
 */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { AccountCorrections } from '../../internal/account/account-corrections.ts';
import { ACCOUNTS, type Account } from '../../internal/account/account.ts';
import { Trail } from '../../internal/audit/trail.ts';
import { systemClock as clock } from '../../internal/platform/clock.ts';
import { newId } from '../../internal/platform/ids.ts';
import { openTestStores, type TestStores } from '../support/test-stores.ts';
import { newApplication } from '../support/world.ts';

let stores: TestStores;
let corrections: AccountCorrections;

beforeAll(async () => {
  stores = await openTestStores();
  corrections = new AccountCorrections({ db: stores.db, clock });
});
afterAll(() => stores.close());

async function newAccount(): Promise<Account> {
  const { email, business_name: businessName, ein } = newApplication();
  const account: Account = {
    _id: newId('acc'),
    email,
    emailNormalized: email,
    ein,
    businessName,
    requestId: newId('req'),
    partnerId: 'demo',
    createdAt: clock.now(),
    activation: { tokenHash: 'hash', expiresAt: clock.now() },
    notifiedAt: clock.now(),
  };
  await stores.db.collection<Account>(ACCOUNTS).insertOne(account);
  return account;
}
const read = (account: Account) =>
  stores.db.collection<Account>(ACCOUNTS).findOne({ _id: account._id });

test('an account that was mailed again meanwhile is not mailed, corrected or released', async () => {
  const seen = await newAccount();
  expect(await corrections.mailAgain(seen)).toBe(true);
  const mailed = await read(seen);
  expect(mailed).toMatchObject({ mailVersion: 1, activation: seen.activation });
  expect(mailed?.notifiedAt).toBeUndefined();
  expect(await corrections.mailAgain(seen)).toBe(false);
  expect(await corrections.correctEmail(seen, 'late@example.com')).toBe('changed');
  expect(await corrections.release(seen)).toBe(false);
  expect(await read(seen)).toEqual(mailed);
});

test('an account whose address was corrected meanwhile is not corrected again, and its old link is void', async () => {
  const seen = await newAccount();
  expect(await corrections.correctEmail(seen, `Right-${seen.email}`)).toBe('done');
  const corrected = await read(seen);
  expect(corrected).toMatchObject({
    emailNormalized: `right-${seen.email}`,
    mailVersion: 1,
    linkVersion: 1,
  });
  expect(corrected?.activation).toBeUndefined();
  expect(await corrections.correctEmail(seen, 'late@example.com')).toBe('changed');
  expect(await read(seen)).toEqual(corrected);
});

test('an account that was released meanwhile stays as it is', async () => {
  const seen = await newAccount();
  expect(await corrections.release(seen)).toBe(true);
  const released = await read(seen);
  expect(await corrections.release(released!)).toBe(false);
  expect(await corrections.mailAgain(released!)).toBe(false);
  expect(await read(seen)).toEqual(released);
});

test('the trail says how an action ended: done, lost to somebody else, or cut off', async () => {
  const trail = new Trail({ db: stores.db, clock, by: 'jane', nameFrom: '--as', copy: () => {} });
  const requestId = newId('req');
  expect(await trail.record({ action: 'retry', requestId }, () => Promise.resolve(true))).toBe(
    true,
  );
  expect(await trail.record({ action: 'retry', requestId }, () => Promise.resolve(false))).toBe(
    false,
  );
  const cutOff = trail.record({ action: 'retry', requestId }, () =>
    Promise.reject(new Error('cut off')),
  );
  await expect(cutOff).rejects.toThrow('cut off');
  expect((await trail.ofRequest(requestId)).map(({ result }) => result)).toEqual([
    'done',
    'not_done',
    'begun',
  ]);
});
