import { createHash } from 'node:crypto';
import { describe, expect, test } from '@jest/globals';
import { activationLink, linkKeys } from './activation.ts';

const options = { loginUrl: 'https://login.example/start?lang=en', linkSecret: 'a'.repeat(32) };

const tokenOf = (url: string): string => new URL(url).searchParams.get('token') ?? '';

test('the link is the login URL with its own query, the account and the token', () => {
  const url = new URL(activationLink('acc_1', options).url);
  expect(url.origin + url.pathname).toBe('https://login.example/start');
  expect(Object.fromEntries(url.searchParams)).toEqual({
    lang: 'en',
    account: 'acc_1',
    token: expect.stringMatching(/^[\w-]{43}$/),
  });
});

test('the same account gets the same link each time; only the hash of its token is for storing', () => {
  const [one, two] = [activationLink('acc_1', options), activationLink('acc_1', options)];
  expect(one).toEqual(two);
  expect(one.tokenHash).toBe(createHash('sha256').update(tokenOf(one.url)).digest('hex'));
});

test('another account or another secret makes another token', () => {
  const links = [
    activationLink('acc_1', options),
    activationLink('acc_2', options),
    activationLink('acc_1', { ...options, linkSecret: 'b'.repeat(32) }),
  ];
  expect(new Set(links.map(({ url }) => tokenOf(url))).size).toBe(3);
  expect(new Set(links.map(({ tokenHash }) => tokenHash)).size).toBe(3);
});

describe('two secrets', () => {
  const [OLD, NEW] = ['o'.repeat(32), 'n'.repeat(32)];
  const link = (linkSecret: string, madeWith?: { keyId?: string }) =>
    activationLink('acc_1', { ...options, linkSecret, madeWith });

  test('the first makes new links; a link that is out is made again with the key that made it', () => {
    const both = `key-2026:${NEW},${OLD}`;
    expect(link(both)).toEqual(link(`key-2026:${NEW}`));
    expect(link(both)).toMatchObject({ keyId: 'key-2026' });
    expect(link(both, {})).toEqual(link(OLD));
    expect(link(OLD)).not.toHaveProperty('keyId');
    expect(link(`${OLD},key-2026:${NEW}`)).toEqual(link(OLD));
    expect(link(`${OLD},key-2026:${NEW}`, { keyId: 'key-2026' })).toEqual(link(`key-2026:${NEW}`));
  });

  test('a link whose key is gone is made with the first', () => {
    expect(link(`key-2026:${NEW}`, {})).toEqual(link(`key-2026:${NEW}`));
  });

  test('a secret without a key id is taken as it is', () => {
    for (const secret of [`a,b:c,${OLD}`, `monkey-1:${OLD}`, `x key-1:${OLD}`])
      expect(linkKeys(secret)).toEqual([{ secret }]);
  });

  test.each([
    [`key-1:${OLD},key-2:${NEW},key-3:${NEW}`, /more than two/],
    [`key-1:${OLD},key-1:${NEW}`, /same key id/],
    [`key-1:short,${OLD}`, /at least 32/],
    [`key-:${OLD}`, /a key id is/],
    [`key-A B:${OLD}`, /a key id is/],
  ])('%s is refused without being quoted', (value, message) => {
    expect(() => linkKeys(value)).toThrow(message);
    expect(() => linkKeys(value)).not.toThrow(/ooo|nnn|short/);
  });
});
