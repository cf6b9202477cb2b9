/** Whose connections have no bound by address: those of trusted proxies. */
import { expect, test } from '@jest/globals';
import { proxyTest } from './connections.ts';

test.each<[networks: string[], trusted: string[], others: string[]]>([
  [[], [], ['127.0.0.1', '::1']],
  [['10.0.0.0/8'], ['10.1.2.3', '::ffff:10.1.2.3'], ['11.0.0.1', '::1', '::ffff:11.0.0.1']],
  [['192.0.2.7'], ['192.0.2.7'], ['192.0.2.8']],
  [
    ['2001:db8::/32', '::1'],
    ['2001:db8::7', '::1'],
    ['2001:db9::7', '::2', '127.0.0.1', 'fe80::1%eth0'],
  ],
])('%j', (networks, trusted, others) => {
  const isProxy = proxyTest(networks);
  expect(trusted.filter((address) => !isProxy(address))).toEqual([]);
  expect(others.filter((address) => isProxy(address))).toEqual([]);
});
