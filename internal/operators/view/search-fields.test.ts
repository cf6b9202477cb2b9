import { expect, test } from '@jest/globals';
import { fields } from './search-fields.ts';

test('a name is searched as it was pasted, because its pattern knows what is alike', () => {
  expect(fields.name.parse('㈱テスト')).toBe('㈱テスト');
  expect(fields.name.safeParse('\u200B ').success).toBe(false);
});

test.each(['12-3456789', '12\u20133456789', '12\u22123456789', '１２ 3456789', '123456\u200B789'])(
  'the EIN %j is nine digits',
  (pasted) => expect(fields.ein.parse(pasted)).toBe('123456789'),
);
