import { expect, test } from '@jest/globals';
import { noProxyFault, noProxyTest } from './networks.ts';

test.each<[no: string, direct: readonly string[], proxied: readonly string[]]>([
  ['', [], ['https://a.example']],
  ['*', ['https://a.example', 'http://[::1]:1'], []],
  ['*:8443', ['https://a.example:8443'], ['https://a.example']],
  ['a.example', ['https://a.example', 'https://b.A.example:8443'], ['https://ba.example']],
  ['.a.example , other', ['https://b.a.example', 'http://other'], ['https://a.example.b']],
  ['*.a.example', ['https://b.a.example'], ['https://ba.example']],
  ['A.example.', ['https://a.example', 'https://a.example.'], ['https://example']],
  ['a.example:443', ['https://a.example', 'https://b.a.example'], ['http://a.example']],
  ['10.0.0.0/8 192.0.2.7', ['https://10.1.2.3', 'http://192.0.2.7:1'], ['https://11.1.2.3']],
  ['192.0.2.7:8443', ['https://192.0.2.7:8443'], ['https://192.0.2.7']],
  ['::1,fd00::/8', ['https://[::1]', 'https://[fd12::1]:8443'], ['https://[fe80::1]']],
  ['[::1]:8443,[fd00::]/8', ['https://[::1]:8443', 'https://[fd12::1]'], ['https://[::1]']],
  ['10.0.0.1,cluster.local,_x-y', ['https://a.svc.cluster.local', 'http://10.0.0.1'], []],
])('NO_PROXY=%s', (no, direct, proxied) => {
  expect(noProxyFault(no)).toBeUndefined();
  const isDirect = noProxyTest(no);
  expect([...direct, ...proxied].filter((url) => isDirect(new URL(url)))).toEqual(direct);
});
