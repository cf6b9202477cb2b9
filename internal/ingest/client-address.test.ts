/** Derives the recorded and the rate-limited address of a client. */
import { expect, test } from '@jest/globals';
import { hopReader } from './client-address.ts';

const readHop = hopReader(() => false);

test.each([
  ['192.0.2.1', '192.0.2.1', '192.0.2.1'],
  ['::ffff:c000:201', '192.0.2.1', '192.0.2.1'],
  ['[::ffff:192.0.2.1]:80', '192.0.2.1', '192.0.2.1'],
  ['192.0.2.1:4711', '192.0.2.1', '192.0.2.1'],
  ['::1', '::1', '::'],
  ['2001:db8:0:1:2:3:4:5', '2001:db8:0:1:2:3:4:5', '2001:db8:0:1::'],
  ['[2001:DB8:0:1::5]:_x', '2001:db8:0:1::5', '2001:db8:0:1::'],
  ['fe80::1%eth0', 'fe80::1', 'fe80::'],
  ['64:ff9b::192.0.2.1', '64:ff9b::c000:201', '192.0.2.1'],
])('%s is %s, limited as %s', (written, ip, limitKey) => {
  expect(readHop(written)?.client).toEqual({ ip, limitKey });
});

test.each([
  '',
  'unknown',
  '192.0.2',
  '192.0.2.1:port',
  '[unknown]',
  'fe80::%%',
  '0.0.0.0',
  'ff02::1',
])('%j is no address of a client', (written) => expect(readHop(written)).toBeUndefined());
