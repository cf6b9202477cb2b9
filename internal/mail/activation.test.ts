import { createHash } from 'node:crypto';
import { expect, test } from '@jest/globals';
import { activationLink } from './activation.ts';

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
