/** Rounds of the controller on the stored keys. */
import { beforeEach, describe, expect, test } from '@jest/globals';
import {
  reconcileKeys,
  type ReconcileTools,
} from '../../internal/controller/reconcile-partner-keys.ts';
import type { SecretList } from '../../internal/controller/secret-source.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { PARTNER_KEYS, SupersededError } from '../../internal/partner/key-document.ts';
import type { PartnerSecret, Problem } from '../../internal/partner/key-secret.ts';
import { KeyStore } from '../../internal/partner/key-store.ts';
import { readTerms } from '../../internal/partner/key-terms.ts';
import { DAY_MS, later, systemClock } from '../../internal/platform/process/clock.ts';
import { createLogger } from '../../internal/platform/process/log.ts';
import { createControllerMetrics } from '../../internal/telemetry/metrics.ts';
import { createRegistry } from '../../internal/platform/process/registry.ts';
import { standingStill } from '../support/standing-still.ts';
import { storedKeys } from '../support/stored-keys.ts';
import { storesOfFile } from '../support/test-stores.ts';

const stores = await storesOfFile();
let store: KeyStore;
let leader: ReconcileTools;
let nowMs: number;
let problems: readonly Problem[];

const clock = { ...systemClock, now: () => later(new Date(0), nowMs) };

beforeEach(async () => {
  await stores.empty();
  nowMs = Date.now();
  store = new KeyStore({ db: stores.db, clock });
  leader = await leading('first');
});

const documents = () => stores.db.collection(PARTNER_KEYS);
const expireAt = (expiresAt: Date) => documents().updateMany({}, { $set: { expiresAt } });

/** A new leader, after the end of the last lease. */
async function leading(holder: string): Promise<ReconcileTools> {
  await expireAt(new Date(0));
  expect(await store.documents.take(holder)).toBe(true);
  return toolsOf(holder);
}

const toolsOf = (holder: string, of = store): ReconcileTools => ({
  store: of,
  holder,
  allowPublished: false,
  clock,
  log: createLogger('test', 'silent'),
  metrics: createControllerMetrics(createRegistry('controller')),
});

const secret = (
  partnerId: string,
  of: Partial<PartnerSecret> & { readonly keys?: readonly string[] } = {},
) => ({
  namespace: 'read',
  name: `s-${partnerId}`,
  uid: `u-${partnerId}`,
  createdAt: new Date(0),
  partnerId,
  status: undefined,
  terms: {},
  faults: [],
  data: Object.fromEntries(
    (of.keys ?? [newApiKey()]).map((key, index) => [
      `key-${index}`,
      Buffer.from(key).toString('base64'),
    ]),
  ),
  ...of,
});
const many = (count: number): PartnerSecret[] =>
  Array.from({ length: count }, (_none, index) => secret(`p${index}`));

const listOf = (secrets: readonly PartnerSecret[], complete = true): SecretList => ({
  secrets,
  problems: [],
  complete,
  asOf: new Date(),
});
const round = async (secrets: readonly PartnerSecret[], complete = true): Promise<void> => {
  problems = await reconcileKeys(listOf(secrets, complete), leader);
};

const stored = async (): Promise<string[]> =>
  (await storedKeys(stores.db)).map(({ partnerId, status }) => `${partnerId} ${status}`).toSorted();
const codes = (): string[] => problems.map(({ code }) => code);

test('an incomplete list changes no key', async () => {
  await round([secret('here'), secret('there')]);
  const banned = secret('here', { status: 'inactive', keys: [] });
  await round([banned, secret('fresh')], false);
  expect(await stored()).toEqual(['here active', 'there active']);
  await round([banned, secret('fresh')]);
  expect(await stored()).toEqual(['fresh active']);
});

describe('a loss of many Secrets', () => {
  const unusable = (one: PartnerSecret): PartnerSecret => ({
    ...one,
    ...readTerms({ 'partner-ingest.io/cidrs': 'everywhere' }),
  });
  const told = () => problems.filter(({ code }) => code === 'keys_would_end');

  test.each([
    ['whose Secrets are gone', () => []],
    ['whose annotations break a rule', (all: readonly PartnerSecret[]) => all.map(unusable)],
  ])('%s: ends none of four keys at once, however long it lasts', async (_, ended) => {
    const all = many(4);
    await round(all);
    for (let again = 0; again < 2; again += 1) {
      nowMs += DAY_MS;
      await round(ended(all));
      expect(await stored()).toHaveLength(4);
      expect(told()).toEqual([
        expect.objectContaining({ message: expect.stringMatching(/ 4 .*p0, p1, p2, p3:/) }),
      ]);
    }
    await round([...ended(all.slice(2)), ...all.slice(0, 2)]);
    expect(await stored()).toEqual(['p0 active', 'p1 active']);
    expect(told()).toEqual([]);
  });

  test.each([4, 41])('one after another ends at most half of %d, by any leader', async (count) => {
    const all = many(count);
    await round(all);
    for (let gone = 1; gone <= count; gone += 1) {
      nowMs += 400;
      if (gone % 7 === 0) leader = await leading(`leader ${gone}`);
      await round(all.slice(gone));
    }
    expect((await stored()).length).toBe(Math.ceil(count / 2));
    expect(told()).toHaveLength(1);
    // What comes back is no loss.
    await round(all);
    expect(await stored()).toHaveLength(count);
    expect(told()).toEqual([]);
  });

  test('one after another ends at most half, also of partners with several Secrets', async () => {
    const all = many(20).flatMap((one) => [one, secret(one.partnerId, { name: `${one.name}-b` })]);
    await round(all);
    for (let gone = 1; gone <= all.length; gone += 1) {
      nowMs += 400;
      await round(all.slice(gone));
    }
    expect(new Set(await stored()).size).toBe(10);
    expect(told()).toHaveLength(1);
  });

  test('is judged for live keys also where those of tests stay', async () => {
    const tests = many(8).map(({ partnerId }) =>
      secret(partnerId, {
        name: `t-${partnerId}`,
        keys: [newApiKey({ test: true })],
        terms: { test: true },
      }),
    );
    const all = many(8);
    await round([...all, ...tests]);
    for (let gone = 1; gone <= 8; gone += 1) await round([...all.slice(gone), ...tests]);
    const live = (await storedKeys(stores.db)).filter(({ terms }) => !terms.test);
    expect(live).toHaveLength(4);
    expect(told()).toHaveLength(1);
  });

  test('slowly is meant', async () => {
    const all = many(6);
    await round(all);
    for (let gone = 1; gone <= 6; gone += 1) {
      nowMs += 601_000;
      await round(all.slice(gone));
    }
    expect(await stored()).toEqual([]);
  });

  test('is no rotation, no change of names, and nothing that one partner does', async () => {
    const all = many(5);
    await round(all);
    const rotated = all.map(({ partnerId }) => secret(partnerId, { name: `new-${partnerId}` }));
    await round([...all, ...rotated]);
    await round(rotated);
    expect(await stored()).toHaveLength(5);
    expect(told()).toEqual([]);
    const big = secret('big', { keys: Array.from({ length: 20 }, () => newApiKey()) });
    await round([...rotated, big]);
    await round(rotated);
    expect(await stored()).toHaveLength(5);
    // Nor does its loss hold back what another partner does in the same minutes.
    await round(rotated.slice(1));
    expect(await stored()).toHaveLength(4);
  });

  test('ends where an operator confirms it by revoking', async () => {
    await round(many(4));
    await round([]);
    for (const { hash } of await storedKeys(stores.db)) await store.revoke(hash);
    await round([]);
    expect(await stored()).toEqual([]);
  });

  test('ends all keys where there are three or fewer', async () => {
    await round(many(3));
    await round([]);
    expect(await stored()).toEqual([]);
  });
});

test('a partner with too many keys loses the newest, after a warning that the room is nearly full', async () => {
  const keys = Array.from({ length: 10_000 }, () => newApiKey());
  const big = secret('big', { keys });
  await round([secret('small'), secret('big', { keys: keys.slice(1_500) })]);
  expect(codes()).toEqual(['keys_nearly_full']);
  await round([secret('small'), big]);
  expect(await storedKeys(stores.db)).toHaveLength(10_000);
  expect(problems.map(({ code, source }) => `${code} ${source.name}`)).toEqual([
    'too_many_keys s-big',
    'keys_nearly_full ',
  ]);
});

test('a revoked key never works again, whatever happens to its Secret', async () => {
  const one = secret('acme');
  await round([one]);
  const [{ hash } = { hash: '' }] = await storedKeys(stores.db);
  expect([await store.revoke(hash), await store.revoke(hash)]).toEqual([true, false]);
  for (const secrets of [[], [one], [{ ...one, uid: 'another', partnerId: 'other' }], [], [one]]) {
    nowMs += 30 * DAY_MS;
    await round(secrets);
    expect(codes()).toEqual(secrets.length === 0 ? [] : ['key_revoked']);
    expect([...(await store.revoked()).keys()]).toEqual([hash]);
  }
});

test('the last use of a key is listed until the key ends', async () => {
  const one = secret('acme');
  await round([one]);
  const [{ hash } = { hash: '' }] = await store.list();
  await store.touch([hash], clock.now());
  await store.touch([hash], new Date(0));
  expect(await store.list('acme')).toMatchObject([{ hash, lastUsedAt: clock.now() }]);
  await round([]);
  await round([one]);
  expect((await store.list('acme'))[0]).not.toHaveProperty('lastUsedAt');
});

test('the first complete round sets syncedAt, and only changes and new leaders raise the version', async () => {
  const version = () => store.documents.version();
  const all = many(3);
  await round(all.slice(1), false);
  expect((await store.documents.read())?.syncedAt).toBeUndefined();
  const seen: (number | undefined)[] = [];
  for (const secrets of [all, all.slice(1), [{ ...all[2]!, status: 'inactive' }]]) {
    await round(secrets);
    seen.push(await version());
    await round(secrets);
    expect(await version()).toBe(seen.at(-1));
  }
  await leading('second');
  seen.push(await version());
  expect(new Set(seen).size).toBe(4);
});

describe('the lease', () => {
  test('has one holder at a time, also after a lost document or a leap of the clock', async () => {
    const { documents: lease } = store;
    expect(await lease.take('second')).toBe(false);
    expect(await lease.renew('first')).toBe(true);
    await lease.giveBack('first');
    expect(await lease.take('second')).toBe(true);
    expect(await lease.renew('first')).toBe(false);
    await expect(round(many(1))).rejects.toThrow(SupersededError);
    await expireAt(later(new Date(), DAY_MS));
    expect(await lease.take('third')).toBe(true);

    await documents().deleteMany({});
    expect(await lease.renew('third')).toBe(false);
    await expect(reconcileKeys(listOf([]), toolsOf('third'))).rejects.toThrow(SupersededError);
    expect(await lease.take('fourth')).toBe(true);
  });

  test('stops the writes of a leader that was frozen anywhere in a round', async () => {
    for (let at = 1; ; at += 1) {
      await stores.empty();
      const all = many(3);
      await reconcileKeys(listOf(all), await leading('frozen'));
      let after: unknown;
      const { db, stood } = standingStill(stores.db, at, async () => {
        const inactive = { ...all[1]!, status: 'inactive' };
        await reconcileKeys(listOf([inactive]), await leading('other'));
        after = await documents().find().toArray();
      });
      const frozen = toolsOf('frozen', new KeyStore({ db, clock }));
      const going = reconcileKeys(listOf([...all, secret('fresh')]), frozen);
      if (!stood()) await going.catch(() => {});
      if (!stood()) {
        expect(at).toBeGreaterThan(3);
        return;
      }
      await expect(going).rejects.toThrow(SupersededError);
      expect(await documents().find().toArray()).toEqual(after);
    }
  });
});
