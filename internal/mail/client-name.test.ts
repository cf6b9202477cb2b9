import { expect, test } from '@jest/globals';
import { clientNameOf } from './client-name.ts';

test.each([
  ['the one given', 'out.example.net', 'mx1.example.com', 'out.example.net'],
  ['the machine, fully qualified', '', 'mx1.example.com', 'mx1.example.com'],
  ['a pod', '', 'partner-ingest-processor-7d4b9-x2x', 'partner.example'],
  ['a machine named after its address', '', '10.0.0.1', 'partner.example'],
  ['a machine that is called as all are', '', 'localhost.localdomain', 'partner.example'],
  ['a name that is none', '', 'mx_1.example.com', 'partner.example'],
])('the greeting of %s', (_what, given, machine, name) => {
  expect(clientNameOf(given, 'accounts@partner.example', machine)).toBe(name);
});
