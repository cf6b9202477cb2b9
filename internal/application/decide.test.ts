import { expect, test } from '@jest/globals';
import { decideOnCreation, type CreationFact } from './decide.ts';
import { reasonsForPartner } from './reasons.ts';

const shownTo = (taken: Omit<Extract<CreationFact, { kind: 'taken' }>, 'kind'>): unknown[] => {
  const decision = decideOnCreation({ kind: 'taken', ...taken });
  if (decision.verdict !== 'reject') throw new Error('not rejected');
  return reasonsForPartner(decision.reasons).map(({ field, code }) =>
    field === undefined ? code : [field, code],
  );
};

test.each([
  [{ einBy: 'req_2' }, [['ein', 'duplicate_ein']]],
  [{ einBy: 'req_2', elsewhere: ['ein'] }, ['duplicate']],
  [{ emailBy: 'req_1', elsewhere: ['email'] }, ['duplicate']],
  [{ emailBy: 'req_1', einBy: 'req_2', elsewhere: ['email', 'ein'] }, ['duplicate']],
  // A duplicate EIN of another partner must not show through an e-mail address of this one.
  [{ emailBy: 'req_1', einBy: 'req_2', elsewhere: ['ein'] }, [['email', 'duplicate_email']]],
] as const)('of the duplicates %j a partner sees only its own accounts', (taken, expected) => {
  expect(shownTo(taken)).toEqual(expected);
});
