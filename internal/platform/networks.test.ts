/** Parses networks and finds addresses in them. */
import { expect, test } from '@jest/globals';
import { addressTest, commonNetworks, isNetwork } from './networks.ts';

test.each<[networks: string[], trusted: string[], others: string[]]>([
  [[], [], ['127.0.0.1', '::1']],
  [['10.0.0.0/8'], ['10.1.2.3', '::ffff:10.1.2.3'], ['11.0.0.1', '::1', '::ffff:11.0.0.1']],
  [['192.0.2.7'], ['192.0.2.7'], ['192.0.2.8', '', 'unknown', '192.0.2.7:80', '3221225991']],
  [
    ['2001:db8::/32', '::1'],
    ['2001:db8::7', '::1'],
    ['2001:db9::7', '::2', '127.0.0.1', 'fe80::1%eth0'],
  ],
])('%j hold addresses and others do not', (networks, trusted, others) => {
  const isIn = addressTest(networks);
  expect(trusted.filter((address) => !isIn(address))).toEqual([]);
  expect(others.filter((address) => isIn(address))).toEqual([]);
});

test.each(['192.0.2.0/24', '192.0.2.7', '::/0', '2001:db8::/32'])('%s is a network', (text) => {
  expect(isNetwork(text)).toBe(true);
});

test.each([
  '',
  '10',
  '10.1',
  '192.0.2.0/33',
  '192.0.2.0/',
  '::1/129',
  'fe80::1%eth0',
  '1.2.3.4/8/8',
])('%j is no network', (text) => {
  expect(isNetwork(text)).toBe(false);
});

test('two lists have in common what both allow', () => {
  const common = commonNetworks(
    ['10.0.0.0/8', '192.0.2.1'],
    ['10.1.0.0/16', '192.0.2.0/24', '::1'],
  );
  expect(common.toSorted()).toEqual(['10.1.0.0/16', '192.0.2.1']);
});
