/** Closers run in reverse and once, even if a step fails or hangs. */
import { expect, test } from '@jest/globals';
import { Closers } from './closers.ts';
import { createLogger } from './log.ts';

test('everything is closed in reverse order, even if one step fails and another never ends', async () => {
  const closers = new Closers(createLogger('test', 'silent'));
  const closed: string[] = [];
  closers.add('first', () => void closed.push('first'));
  closers.add('hangs', () => new Promise(() => {}), 10);
  closers.add('fails', () => Promise.reject(new Error('no')));
  closers.add('throws', () => {
    throw new Error('no');
  });
  closers.add('last', async () => void closed.push('last'));
  await Promise.all([closers.closeAll(), closers.closeAll()]);
  expect(closed).toEqual(['last', 'first']);
});
