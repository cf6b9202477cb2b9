import { createHash } from 'node:crypto';
import { describe, expect, test } from '@jest/globals';
import { defined } from '../platform/process/defined.ts';
import { activationLink, linkSecretFault } from './activation.ts';

const options = { loginUrl: 'https://login.example/start?lang=en', linkSecret: 'a'.repeat(32) };
const account = { _id: 'acc_1' };

test('the link has the query of the login URL, the account and the token, whose hash is stored', () => {
  const { url, tokenHash } = activationLink(account, options);
  const { origin, pathname, searchParams } = new URL(url);
  expect(origin + pathname).toBe('https://login.example/start');
  const { token = '', ...query } = Object.fromEntries(searchParams);
  expect(query).toEqual({ lang: 'en', account: 'acc_1' });
  expect(token).toMatch(/^[\w-]{43}$/);
  expect(tokenHash).toBe(createHash('sha256').update(token).digest('hex'));
});

describe('two secrets', () => {
  const [OLD, NEW] = ['o'.repeat(32), 'n'.repeat(32)];
  const link = (linkSecret: string, madeWith?: { keyId?: string }) => {
    const activation = madeWith && { tokenHash: '', expiresAt: new Date(0), ...madeWith };
    return activationLink({ ...account, ...defined({ activation }) }, { ...options, linkSecret });
  };

  test('the first makes new links, and the secret of its key id makes an old link again', () => {
    const both = `key-2026:${NEW},${OLD}`;
    expect(link(both)).toEqual(link(`key-2026:${NEW}`));
    expect(link(both)).toMatchObject({ keyId: 'key-2026' });
    expect(link(both, {})).toEqual(link(OLD));
    expect(link(OLD)).not.toHaveProperty('keyId');
    expect(link(`${OLD},key-2026:${NEW}`)).toEqual(link(OLD));
    expect(link(`${OLD},key-2026:${NEW}`, { keyId: 'key-2026' })).toEqual(link(`key-2026:${NEW}`));
  });

  const [GOOD, BETTER] = ['0a9b1c8d2e7f3a6b4c5d9e8f7a6b5c4d', 'd4c5b6a7f8e9d5c4b6a3f7e2d8c1b9a0'];

  test.each([
    [`key-1:${GOOD},key-2:${BETTER},key-3:${BETTER}`, /more than two/],
    [`key-1:${GOOD},key-1:${BETTER}`, /same key id/],
    [`key-1:short,${GOOD}`, /at least 32/],
    [`key-:${GOOD}`, /a key id is/],
    [`${GOOD},key-1:${NEW}`, /can be guessed/],
  ])('%s is refused without being quoted', (value, message) => {
    expect(linkSecretFault(value)).toMatch(message);
    expect(linkSecretFault(value)).not.toMatch(/ooo|nnn|0a9b|short/);
  });
});
