import { expect, test } from '@jest/globals';
import { clientNameOf, relayOf, type TlsMode } from './mailer.ts';

test.each<[string, object]>([
  ['smtp://relay.example', { host: 'relay.example', port: 587, secure: false }],
  ['smtps://relay.example/', { host: 'relay.example', port: 465, secure: true }],
  ['smtp://[::1]:2525', { host: '::1', port: 2525 }],
  [
    'smtp://us%40er:p%25s%3As@relay.example',
    { host: 'relay.example', auth: { user: 'us@er', pass: 'p%s:s' } },
  ],
])('%s is %j', (url, expected) => {
  expect(relayOf(url, 'auto')).toMatchObject(expected);
});

test.each<[string, TlsMode, 'required' | 'opportunistic' | 'none']>([
  ['smtp://relay.example', 'auto', 'opportunistic'],
  ['smtp://user:pass@relay.example', 'auto', 'required'],
  ['smtp://user:pass@localhost', 'auto', 'opportunistic'],
  ['smtp://user:pass@localhost.evil.example', 'auto', 'required'],
  ['smtp://user:pass@relay.example', 'opportunistic', 'opportunistic'],
  ['smtp://user:pass@relay.example', 'none', 'none'],
  ['smtp://relay.example', 'required', 'required'],
])('STARTTLS of %s with SMTP_TLS=%s is %s', (url, mode, expected) => {
  const { requireTLS, ignoreTLS, secure } = relayOf(url, mode);
  expect({ requireTLS, ignoreTLS, secure }).toEqual({
    requireTLS: expected === 'required',
    ignoreTLS: expected === 'none',
    secure: false,
  });
});

test.each([
  ['smtp://', /names no host/],
  ['smtp://relay.example?tls.rejectUnauthorized=false', /must end after host and port/],
  ['smtp://hunter2@relay.example', /a user or a password, but not both/],
  ['smtp://user:hunter2%@relay.example', /written as %25/],
])('%s is refused, and the message holds no secret', (url, words) => {
  expect(() => relayOf(url, 'auto')).toThrow(words);
  expect(() => relayOf(url, 'auto')).toThrow(
    expect.objectContaining({ message: expect.not.stringContaining('hunter2') }),
  );
});

test('smtps with SMTP_TLS=none is refused', () => {
  expect(() => relayOf('smtps://relay.example', 'none')).toThrow(/^SMTP_TLS: .*contradicts/);
});

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
