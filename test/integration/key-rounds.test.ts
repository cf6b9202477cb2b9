/**
 * Rounds of the controller on the stored keys: what a partial list may change, which ends wait, and
 * who may write.
 */
import { isDeepStrictEqual } from 'node:util';
import type { Db } from 'mongodb';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { KeyRounds } from '../../internal/controller/reconcile-partner-keys.ts';
import type { SecretList } from '../../internal/controller/secret-source.ts';
import { hashApiKey, newApiKey } from '../../internal/partner/api-key.ts';
import type { PartnerSecret, Problem } from '../../internal/partner/key-secret.ts';
import {
  DEFER_MS,
  KeyStore,
  PARTNER_KEYS,
  type PartnerKey,
} from '../../internal/partner/key-store.ts';
import { PARTNER_KEY_SYNC, SupersededError } from '../../internal/partner/key-sync.ts';
import { DAY_MS, later, systemClock } from '../../internal/platform/clock.ts';
import { createLogger } from '../../internal/platform/log.ts';
import { createControllerMetrics } from '../../internal/telemetry/metrics.ts';
import { createRegistry } from '../../internal/telemetry/registry.ts';
import { openTestStores, type TestStores } from '../support/test-stores.ts';

let stores: TestStores;
let store: KeyStore;
let rounds: KeyRounds;
let nowMs: number;
let problems: readonly Problem[];

const clock = { ...systemClock, now: () => later(new Date(0), nowMs) };

beforeAll(async () => {
  stores = await openTestStores();
});
afterAll(() => stores.close());
beforeEach(async () => {
  await stores.empty();
  nowMs = Date.now();
  store = new KeyStore({ db: stores.db, clock });
  rounds = roundsOf(await leading('first'));
});

/** The term of a new leader; the lease before has been given back, or has expired. */
async function leading(holder: string): Promise<number> {
  await stores.db.collection(PARTNER_KEY_SYNC).updateMany({}, { $set: { expiresAt: new Date(0) } });
  const term = (await store.takeLease(holder))!;
  await store.raise(term);
  return term;
}

const roundsOf = (term: number, of = store): KeyRounds =>
  new KeyRounds(term, {
    store: of,
    allowPublished: false,
    clock,
    log: createLogger('test', 'silent'),
    metrics: createControllerMetrics(createRegistry('controller')),
    report: (all) => (problems = all),
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
  data: Object.fromEntries(
    (of.keys ?? [newApiKey()]).map((key, index) => [
      `key-${index}`,
      Buffer.from(key).toString('base64'),
    ]),
  ),
  ...of,
});

/** A list of these; with `unread`, one that could not read that part of the source. */
const listOf = (secrets: readonly PartnerSecret[], unread?: string): SecretList => ({
  secrets,
  problems: [],
  complete: unread === undefined,
  provesGone: ({ namespace }) => namespace !== unread,
  asOf: new Date(),
});
const round = (secrets: readonly PartnerSecret[], unread?: string) =>
  rounds.round(listOf(secrets, unread));

const loaded = async (): Promise<readonly PartnerKey[]> => (await store.load())?.keys ?? [];
/** Keys that requests are accepted with now. */
const active = async (): Promise<number> =>
  (await loaded()).filter(
    ({ status, terms }) =>
      status === 'active' && !((terms?.notAfter?.getTime() ?? Infinity) <= nowMs),
  ).length;
const codes = (): string[] => [...new Set(problems.map(({ code }) => code))];

describe('a partial list', () => {
  test('a new key of a partner that something unread has switched off stays out', async () => {
    const banned = secret('banned');
    const off = secret('banned', {
      namespace: 'unread',
      name: 'off',
      status: 'inactive',
      keys: [],
    });
    await round([banned, off]);
    expect(await active()).toBe(0);
    await round([banned, secret('banned', { name: 'more' }), secret('fresh')], 'unread');
    expect(
      (await loaded()).map(({ partnerId, status }) => `${partnerId} ${status}`).toSorted(),
    ).toEqual(['banned inactive', 'fresh active']);
  });

  test('a key of something unread stays, and goes once that has been read without it', async () => {
    const [here, there] = [secret('here'), secret('there', { namespace: 'unread' })];
    await round([here, there]);
    await round([here], 'unread');
    expect(await active()).toBe(2);
    await round([here], 'another');
    expect(await active()).toBe(1);
  });
});

type Ending = (one: PartnerSecret) => readonly PartnerSecret[];
const endings: readonly (readonly [string, Ending])[] = [
  ['their Secrets are deleted', () => []],
  [
    'an annotation breaks its rule',
    (one) => [annotated(one, { 'partner-ingest.io/cidrs': 'everywhere' })],
  ],
];
const annotated = (
  one: PartnerSecret,
  annotations: Readonly<Record<string, string>>,
): PartnerSecret => ({
  ...one,
  annotations,
});
const many = (count: number): PartnerSecret[] =>
  Array.from({ length: count }, (_none, index) => secret(`p${index}`));

/** All of them, of which the first `count` have ended as `ended` says. */
const withEnded = (all: readonly PartnerSecret[], count: number, ended: Ending = () => []) =>
  all.flatMap((one, index) => (index < count ? ended(one) : [one]));

describe('most keys end within ten minutes', () => {
  test.each(endings)(
    'at once, because %s: they stay for ten minutes, loudly, and then go',
    async (_how, ended) => {
      const all = many(7);
      await round(all);
      expect(await round(withEnded(all, 7, ended))).toEqual({ deferred: 7 });
      expect(await active()).toBe(7);
      expect(problems.filter(({ code }) => code === 'removal_deferred')).toHaveLength(7);
      nowMs += DEFER_MS - 1;
      expect(await round(withEnded(all, 7, ended))).toEqual({ deferred: 7 });
      expect(await active()).toBe(7);
      nowMs += 1;
      expect(await round(withEnded(all, 7, ended))).toEqual({ deferred: 0 });
      expect(await active()).toBe(0);
      expect(codes()).not.toContain('removal_deferred');
    },
  );

  test('one by one, 400 ms apart: the ninth of 16 is the first to stay', async () => {
    const all = many(16);
    await round(all);
    for (let count = 1; count <= 12; count += 1) {
      nowMs += 400;
      await round(withEnded(all, count));
      expect(await active()).toBe(16 - Math.min(count, 8));
    }
    // They are back: nothing is deferred any more.
    expect(await round(all)).toEqual({ deferred: 0 });
    expect(await active()).toBe(16);
    expect(await store.deferred()).toEqual([]);
  });
});

describe('deferred removals', () => {
  test('a rotation loses none: each key that ends makes room for the next, however often', async () => {
    let one = secret('acme');
    await round([one]);
    for (let turn = 1; turn <= 6; turn += 1) {
      const next = secret('acme');
      nowMs += 1_000;
      await round([{ ...one, data: { ...one.data, next: next.data['key-0']! } }]);
      nowMs += 1_000;
      expect(await round([next])).toEqual({ deferred: 0 });
      one = next;
    }
    expect(await active()).toBe(1);
  });
});

test('a revoked key never works again, whatever its Secret does, and however long', async () => {
  const one = secret('acme');
  await round([one]);
  const [{ _id: hash }] = (await loaded()) as [PartnerKey];
  expect(await store.revoke(hash)).toBe(true);
  expect(await store.revoke(hash)).toBe(false);
  for (const secrets of [
    [],
    [],
    [one],
    [{ ...one, uid: 'another', partnerId: 'other' }],
    [],
    [],
    [one],
  ]) {
    await round(secrets);
    expect(await loaded()).toEqual([]);
    expect(codes()).toEqual(secrets.length === 0 ? [] : ['key_revoked']);
    nowMs += 30 * DAY_MS;
  }
  expect((await store.load())?.removed.map(({ _id }) => _id)).toEqual([hash]);
});

describe('the version that ingest compares', () => {
  const version = async (): Promise<string | undefined> => store.sync.version();

  test('comes with the first complete round, changes with every change, and with nothing else', async () => {
    const all = many(3);
    await round(all.slice(1), 'unread');
    expect(await version()).toBeUndefined();
    expect(await store.load()).toBeUndefined();
    const seen: (string | undefined)[] = [];
    for (const secrets of [all, all.slice(1), [{ ...all[2]!, status: 'inactive' }]]) {
      await round(secrets);
      seen.push(await version());
      await round(secrets);
      expect(await version()).toBe(seen.at(-1));
    }
    await store.revoke(hashApiKey(newApiKey()));
    seen.push(await version());
    // The last leader may have been killed before it counted.
    await roundsOf(await leading('second')).round(listOf(all));
    seen.push(await version());
    expect(new Set(seen).size).toBe(5);
    expect((await store.load())?.version).toBe(await version());
  });

  test('changes after a round whose count failed, though that one finds nothing to write', async () => {
    await round([]);
    const before = await version();
    const count = store.sync.count.bind(store.sync);
    store.sync.count = () => Promise.reject(new Error('MongoDB is away'));
    await expect(round(many(1))).rejects.toThrow('MongoDB is away');
    store.sync.count = count;
    expect(await version()).toBe(before);
    await round(many(1));
    expect(await version()).not.toBe(before);
  });
});

describe('who may write', () => {
  const documents = () => stores.db.collection<PartnerKey>(PARTNER_KEYS);
  const stored = async () =>
    new Map((await documents().find().toArray()).map((key) => [key._id, key]));

  test('one holder at a time, and each in a later term, also where the lease document is lost', async () => {
    const first = await leading('one');
    expect(await store.takeLease('two')).toBeUndefined();
    expect(await store.sync.renew('one', first)).toBe(true);
    await store.sync.giveBack('one', first);
    const second = (await store.takeLease('two'))!;
    expect(second).toBeGreaterThan(first);
    expect(await store.sync.renew('one', first)).toBe(false);
    await store.raise(second);
    await roundsOf(second).round(listOf(many(1)));
    await stores.db.collection(PARTNER_KEY_SYNC).deleteMany({});
    expect(await store.sync.renew('two', second)).toBe(false);
    await expect(roundsOf(second).round(listOf([]))).rejects.toThrow(SupersededError);
    expect(await store.takeLease('three')).toBeGreaterThan(second);
  });

  /**
   * A database whose user stands still before the call `at`, counted from 1, while `meanwhile`
   * runs.
   */
  function standingStill(
    at: number,
    meanwhile: () => Promise<void>,
  ): { readonly db: Db; readonly stood: () => boolean } {
    let calls = 0;
    const slowed = <T extends object>(target: T): T =>
      new Proxy(target, {
        get(of, name) {
          const value: unknown = Reflect.get(of, name, of);
          if (typeof value !== 'function') return value;
          return (...args: unknown[]): unknown => {
            const call = (): unknown => Reflect.apply(value, of, args);
            if (name === 'collection' || name === 'find') return slowed(call() as object);
            calls += 1;
            return calls === at ? meanwhile().then(call) : call();
          };
        },
      });
    return { db: slowed(stores.db), stood: () => calls >= at };
  }

  test('a leader that stood still changes no key, wherever in a round it goes on', async () => {
    for (let at = 1; ; at += 1) {
      await stores.empty();
      const all = many(3);
      const term = await leading('frozen');
      await roundsOf(term).round(listOf(all));
      let after: ReadonlyMap<string, PartnerKey> = new Map();
      const { db, stood } = standingStill(at, async () => {
        await roundsOf(await leading('other')).round(
          listOf([all[0]!, { ...all[1]!, status: 'inactive' }]),
        );
        after = await stored();
      });
      const frozen = roundsOf(term, new KeyStore({ db, clock }));
      const going = frozen.round(
        listOf([{ ...all[0]!, status: 'inactive' }, ...all.slice(1), secret('fresh')]),
      );
      if (!stood()) await going.catch(() => {});
      if (!stood()) {
        // All the calls of a round, to the count of what it changed.
        expect(at).toBeGreaterThan(6);
        return;
      }
      await expect(going).rejects.toThrow(SupersededError);
      // At most a tombstone that the other leader has not seen.
      const changed = [...(await stored()).values()].filter(
        (key) => !isDeepStrictEqual(key, after.get(key._id)),
      );
      expect(changed.map(({ status, partnerId }) => `${partnerId} ${status}`)).toEqual(
        changed.length === 0 ? [] : ['fresh removed'],
      );
    }
  });
});
