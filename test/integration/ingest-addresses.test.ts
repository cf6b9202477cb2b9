/**
 * Whose request it is: the address on the record and the one that is limited, behind proxies and
 * without.
 */
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { bodies, expectAnswer, expectRecord } from '../support/ingest.ts';
import { send } from '../support/http.ts';
import { NO_REDIS, openWorld, type InProcess, type World } from '../support/world.ts';

const UNTRUSTED = 'partner_ingest_untrusted_forwarded_for_total';
let world: World;
/** Trusts its peer (the tests), a network of inner proxies, and one IPv6 network. */
let behindProxies: InProcess;
/** Trusts a network its peer is not in. */
let elsewhere: InProcess;
let alone: InProcess;

beforeAll(async () => {
  world = await openWorld();
  [behindProxies, elsewhere, alone] = await Promise.all([
    world.start('ingest', { TRUSTED_PROXIES: '127.0.0.0/8, 10.1.0.0/16, 2001:db8:ffff::/48' }),
    world.start('ingest', { TRUSTED_PROXIES: '10.1.0.0/16' }),
    world.start('ingest'),
  ]);
});
afterAll(() => world.close());

async function expectAddress(
  ingest: InProcess,
  forwardedFor: string,
  remoteIp: string,
): Promise<void> {
  const answer = await send(ingest.url, {
    key: world.key,
    body: '{}',
    headers: { 'x-forwarded-for': forwardedFor },
  });
  const id = expectAnswer(answer, 202, bodies.accepted);
  await expectRecord(world, id, {
    state: 'recorded',
    httpStatus: 202,
    partnerId: 'demo',
    bytes: Buffer.from('{}'),
    remoteIp,
  });
}

describe('from a trusted peer', () => {
  test.each([
    ['one address', '192.0.2.1', '192.0.2.1'],
    ['blanks around it', '  192.0.2.1  ', '192.0.2.1'],
    ['a forged entry on the left', '203.0.113.9, 192.0.2.1', '192.0.2.1'],
    ['a forged trusted entry on the left', '10.1.0.9, 192.0.2.1', '192.0.2.1'],
    ['a trusted hop', '192.0.2.1, 10.1.0.7', '192.0.2.1'],
    ['several trusted hops', '203.0.113.9, 192.0.2.1, 10.1.2.3, 127.0.0.9, 10.1.0.7', '192.0.2.1'],
    ['trusted hops only', '10.1.0.8, 10.1.0.7', '10.1.0.8'],
    ['a trusted IPv6 hop', '192.0.2.1, 2001:db8:ffff::7', '192.0.2.1'],
    ['IPv4 mapped into IPv6', '::ffff:192.0.2.1', '192.0.2.1'],
    ['a trusted hop mapped into IPv6', '192.0.2.1, ::ffff:10.1.0.7', '192.0.2.1'],
    ['IPv6', '2001:db8::1', '2001:db8::1'],
    ['IPv6 written at length', '2001:0DB8:0000:0000:0000:0000:0000:0001', '2001:db8::1'],
    ['an address with a port', '192.0.2.1:4711', '192.0.2.1'],
    ['IPv6 with a port', '[2001:db8::1]:4711', '2001:db8::1'],
    ['IPv6 in brackets', '[2001:db8::1]', '2001:db8::1'],
    ['garbage', 'unknown', '127.0.0.1'],
    ['an empty header', '', '127.0.0.1'],
    ['commas', ',,,', '127.0.0.1'],
    ['an octet that is none', '192.0.2.256', '127.0.0.1'],
    ['a script', '<script>', '127.0.0.1'],
    ['garbage on the left', 'unknown, 192.0.2.1', '192.0.2.1'],
    ['an address of 1,000 characters', '1'.repeat(1_000), '127.0.0.1'],
  ])('%s', async (_name, forwardedFor, remoteIp) => {
    await expectAddress(behindProxies, forwardedFor, remoteIp);
  });

  test('it is not counted as untrusted', async () => {
    const before = await world.metric(behindProxies, UNTRUSTED);
    await expectAddress(behindProxies, '192.0.2.1', '192.0.2.1');
    expect(await world.metric(behindProxies, UNTRUSTED)).toBe(before);
  });

  test('without the header it is the peer', async () => {
    const id = expectAnswer(
      await send(behindProxies.url, { key: world.key, body: '{}' }),
      202,
      bodies.accepted,
    );
    expect((await world.record(id))?.remoteIp).toBe('127.0.0.1');
  });
});

describe('from a peer that is not trusted', () => {
  test.each([
    ['while nobody is', (): InProcess => alone],
    ['while others are', (): InProcess => elsewhere],
  ])('%s, X-Forwarded-For is ignored and counted', async (_name, ingest) => {
    await expectAddress(ingest(), '192.0.2.1', '127.0.0.1');
    await expectAddress(ingest(), '192.0.2.1, 10.1.0.7', '127.0.0.1');
    expect(await world.metric(ingest(), UNTRUSTED)).toBe(2);
    await send(ingest().url, { key: world.key, body: '{}' });
    expect(await world.metric(ingest(), UNTRUSTED)).toBe(2);
  });
});

describe('the limit', () => {
  test.each([
    [
      'IPv4 addresses are limited one by one',
      ['192.0.2.21', '::ffff:192.0.2.21', '192.0.2.21:80'],
      '192.0.2.22',
    ],
    [
      'IPv6 addresses are limited by their /64',
      ['2001:db8:0:1::1', '2001:db8:0:1:ffff::2'],
      '2001:db8:0:2::1',
    ],
    [
      'IPv6 addresses of a translator are limited by the IPv4 address within',
      ['64:ff9b::192.0.2.41', '64:ff9b::c000:229', '0064:ff9b:0::c000:0229', '192.0.2.41'],
      '64:ff9b::192.0.2.42',
    ],
    [
      'a forged entry on the left buys nothing',
      ['1.1.1.1, 192.0.2.31', '2.2.2.2, 192.0.2.31'],
      '1.1.1.1',
    ],
  ])('%s', async (_name, together, other) => {
    // One process and one window, so that no count is lost: a Redis that takes too long would leave
    // the next to the process.
    const ingest = await world.start('ingest', {
      TRUSTED_PROXIES: '127.0.0.0/8',
      RATE_LIMIT_MAX: '1',
      RATE_LIMIT_WINDOW_SECONDS: '3600',
      REDIS_URL: NO_REDIS,
    });
    const status = async (forwardedFor: string): Promise<number> =>
      (
        await send(ingest.url, {
          key: world.key,
          body: '{}',
          headers: { 'x-forwarded-for': forwardedFor },
        })
      ).status;
    const [first = '', ...rest] = together;
    expect(await status(first)).toBe(202);
    for (const address of rest) expect(await status(address)).toBe(429);
    expect(await status(other)).toBe(202);
    await ingest.close();
  });
});
