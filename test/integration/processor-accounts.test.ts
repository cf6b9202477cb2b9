/** Accounts on the real store: unique indexes decide in repeats and races. */
import { expect, test } from '@jest/globals';
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

const create = (application: ReturnType<typeof applicant>, owner: ReturnType<typeof by>) =>
  accounts.create(accounts.draft(application, owner));

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
