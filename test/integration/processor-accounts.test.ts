/** Accounts on the real store: unique indexes decide in repeats and races. */
import { expect, test } from '@jest/globals';
import { MongoServerError, type Collection, type Db } from 'mongodb';
import { ACCOUNTS, type Account } from '../../internal/account/account.ts';
import { AccountStore } from '../../internal/account/account-store.ts';
import { systemClock as clock } from '../../internal/platform/process/clock.ts';
import { storesOfFile } from '../support/test-stores.ts';
import { newApplication } from '../support/world.ts';

const stores = await storesOfFile({ indexes: true });
const accounts = new AccountStore({ db: stores.db, clock });

const applicant = () => {
  const { email, business_name: businessName, ein } = newApplication();
  return { email, businessName, ein };
};
const by = (requestId: string) => ({ requestId, partnerId: 'demo' });

const create = (
  application: ReturnType<typeof applicant>,
  owner: ReturnType<typeof by>,
  store = accounts,
) => store.create(store.draft(application, owner));

/** A store of accounts with this `insertOne`. */
function storeOver(insertOne: Collection<Account>['insertOne']): AccountStore {
  const collection = stores.db.collection<Account>(ACCOUNTS);
  collection.insertOne = insertOne;
  return new AccountStore({ db: { collection: () => collection } as unknown as Db, clock });
}

test('a repeat of the same request finds its own account', async () => {
  const application = applicant();
  const first = await create(application, by('req_own'));
  expect(first.kind).toBe('created');
  expect(await create(application, by('req_own'))).toEqual({ ...first, kind: 'own' });
  // Another account holds the EIN, but the own account wins.
  const other = applicant();
  await create(other, by('req_other'));
  expect(await create({ ...application, ein: other.ein }, by('req_own'))).toMatchObject({
    kind: 'own',
  });
});

test('each taken field is named, also if two accounts are in the way', async () => {
  const [one, two] = [applicant(), applicant()];
  await create(one, by('req_one'));
  await create(two, by('req_two'));
  const late = { ...applicant(), email: one.email.toUpperCase() };
  const email = { field: 'email', requestId: 'req_one', samePartner: true };
  const ein = { field: 'ein', requestId: 'req_two', samePartner: true };
  const taken = (...holders: object[]) => ({ kind: 'taken', holders });
  expect(await create(late, by('req_3'))).toEqual(taken(email));
  expect(await create({ ...applicant(), ein: two.ein }, by('req_4'))).toEqual(taken(ein));
  expect(await create({ ...late, ein: two.ein }, by('req_5'))).toEqual(taken(email, ein));
  const ofOther = { requestId: 'req_6', partnerId: 'other' };
  expect(await create(late, ofOther)).toEqual(taken({ ...email, samePartner: false }));
});

test.each([
  [{ message: 'deadlock detected', code: 16_908_292 }, 4, 'created'],
  [{ message: 'deadlock detected', code: 16_908_292 }, 5, 'error'],
  [{ message: 'Document failed validation', code: 121 }, 1, 'error'],
])('an insert that ends with %j, %i times, results in %s', async (error, times, expected) => {
  let left = times;
  const store = storeOver(async (...insert) => {
    left -= 1;
    if (left >= 0) throw new MongoServerError(error);
    return stores.accounts.insertOne(...insert);
  });
  const fact = create(applicant(), by(`req_unlucky_${error.code}_${times}`), store);
  if (expected === 'error') await expect(fact).rejects.toThrow(error.message);
  else expect((await fact).kind).toBe(expected);
});
