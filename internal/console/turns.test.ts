import { expect, test } from '@jest/globals';
import { readsInTurns } from './turns.ts';

test('people take turns at reads of many records, and who has most waiting is refused', async () => {
  const inTurn = readsInTurns();
  const person = (sub: string) =>
    ({ person: { name: sub, nameFrom: 'console', role: 'viewer', sub } }) as const;
  const done: string[] = [];
  const gate = Promise.withResolvers<void>();
  const read = (sub: string, what: string) =>
    inTurn(person(sub), () => gate.promise.then(() => void done.push(what)));
  const anns = Array.from({ length: 22 }, (_, index) => read('ann', `ann ${index}`));
  const bobs = read('bob', 'bob');

  await expect(anns.pop()).rejects.toMatchObject({ statusCode: 429 });
  gate.resolve();
  await Promise.all([...anns, bobs]);

  expect(done.slice(0, 4)).toEqual(['ann 0', 'ann 1', 'ann 2', 'bob']);
  expect(done).toHaveLength(22);
});
