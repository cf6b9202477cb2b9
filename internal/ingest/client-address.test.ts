/** Turns the address from a socket or proxy into the recorded one and the limited one. */
import { expect, test } from '@jest/globals';
import { clientAddress } from './client-address.ts';

const SOCKET = '198.51.100.1';

test.each([
  ['192.0.2.1', '192.0.2.1', '192.0.2.1'],
  ['::ffff:192.0.2.1', '192.0.2.1', '192.0.2.1'],
  ['[::ffff:192.0.2.1]:80', '192.0.2.1', '192.0.2.1'],
  ['192.0.2.1:4711', '192.0.2.1', '192.0.2.1'],
  ['::1', '::1', '::'],
  ['2001:db8:0:1:2:3:4:5', '2001:db8:0:1:2:3:4:5', '2001:db8:0:1::'],
  ['[2001:db8:0:1::5]:4711', '2001:db8:0:1::5', '2001:db8:0:1::'],
])('%s is %s, limited as %s', (claimed, ip, limitKey) => {
  expect(clientAddress(claimed, SOCKET)).toEqual({ ip, limitKey });
});

test.each(['', 'unknown', '192.0.2', '192.0.2.1:port', '[unknown]', 'fe80::%%'])(
  "%j is no address, so the socket's counts",
  (claimed) => {
    expect(clientAddress(claimed, SOCKET)).toEqual({
      ip: '198.51.100.1',
      limitKey: '198.51.100.1',
    });
    expect(clientAddress(claimed, '::ffff:198.51.100.1').limitKey).toBe('198.51.100.1');
  },
);
