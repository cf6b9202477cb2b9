import { expect, test } from '@jest/globals';
import { decideOnCreation, reasonsForPartner, type Holder } from './reasons.ts';

const shownTo = (holders: readonly Holder[]): unknown[] => {
  const decision = decideOnCreation({ kind: 'taken', holders });
  if (decision.verdict !== 'reject') throw new Error('not rejected');
  return reasonsForPartner(decision.reasons).map(({ field, code }) =>
    field === undefined ? code : [field, code],
  );
};

const email = { field: 'email', requestId: 'req_1', samePartner: true } as const;
const ein = { field: 'ein', requestId: 'req_2', samePartner: true } as const;
const elsewhere = { samePartner: false } as const;

test.each<[Holder[], unknown[]]>([
  [[ein], [['ein', 'duplicate_ein']]],
  [[{ ...ein, ...elsewhere }], ['duplicate']],
  [[{ ...email, ...elsewhere }], ['duplicate']],
  [
    [
      { ...email, ...elsewhere },
      { ...ein, ...elsewhere },
    ],
    ['duplicate'],
  ],
  // A duplicate EIN of another partner must not show through an e-mail address of this one.
  [[email, { ...ein, ...elsewhere }], [['email', 'duplicate_email']]],
])('of the duplicates %j a partner sees only its own accounts', (holders, expected) => {
  expect(shownTo(holders)).toEqual(expected);
});
