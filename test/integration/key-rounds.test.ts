/** Rounds of the controller on the stored keys. */
import { beforeEach, describe, expect, test } from '@jest/globals';
import {
  reconcileKeys,
  type ReconcileTools,
} from '../../internal/controller/reconcile-partner-keys.ts';
import type { SecretList } from '../../internal/controller/secret-source.ts';
import { hashApiKey, newApiKey } from '../../internal/partner/api-key.ts';
import { PARTNER_KEYS, SupersededError } from '../../internal/partner/key-document.ts';
import type { PartnerSecret, Problem } from '../../internal/partner/key-secret.ts';
import { inTurn } from '../../internal/partner/kept-findings.ts';
import { KeyStore } from '../../internal/partner/key-store.ts';
import { readTerms } from '../../internal/partner/key-terms.ts';
import { DAY_MS, later, systemClock } from '../../internal/platform/process/clock.ts';
import { createLogger } from '../../internal/platform/process/log.ts';
import { createControllerMetrics } from '../../internal/telemetry/metrics.ts';
import { createRegistry } from '../../internal/platform/process/registry.ts';
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
  expect(await store.documents.acquire(holder)).toBe(true);
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
const hashIn = ({ data }: PartnerSecret): string =>
  hashApiKey(Buffer.from(data['key-0']!, 'base64').toString());
const many = (count: number): PartnerSecret[] =>
  Array.from({ length: count }, (_none, index) => secret(`p${index}`));

const listOf = (secrets: readonly PartnerSecret[], complete = true): SecretList => ({
  secrets,
  partners: [],
  problems: [],
  complete,
  asOf: new Date(),
});
const round = async (secrets: readonly PartnerSecret[], complete = true): Promise<void> => {
  ({ problems } = await reconcileKeys(listOf(secrets, complete), leader));
};

const stored = async (): Promise<string[]> =>
  (await storedKeys(stores.db)).map(({ partnerId, status }) => `${partnerId} ${status}`).toSorted();
const codes = (): string[] => problems.map(({ code }) => code);

const told = () => problems.filter(({ code }) => code === 'keys_would_end');
const withKey = (one: PartnerSecret): PartnerSecret => secret(one.partnerId);
const MINUTE_MS = 60_000;

test('a bound that cannot be read keeps its last value, also under the next leader', async () => {
  const one = secret('acme');
  const withBound = (value: string) => ({
    ...one,
    ...readTerms({ 'partner-ingest.io/max-per-minute': value }),
  });
  const bound = async () => (await storedKeys(stores.db)).map(({ terms }) => terms.maxPerMinute);
  await round([withBound('60')]);
  await round([withBound('abc')]);
  expect([await bound(), codes()]).toEqual([[60], ['invalid_limit']]);
  leader = await leading('second');
  await round([withBound('6o')]);
  expect([await bound(), await stored()]).toEqual([[60], ['acme active']]);
  // A new key of the partner has it, too.
  await round([withBound('abc'), secret('acme', { name: 'second', uid: 'second' })]);
  expect(await bound()).toEqual([60, 60]);
  await round([withBound('90')]);
  expect([await bound(), codes()]).toEqual([[90], []]);
});

describe('a loss of many Secrets', () => {
  const unusable = (one: PartnerSecret): PartnerSecret => ({
    ...one,
    ...readTerms({ 'partner-ingest.io/cidrs': 'everywhere' }),
  });

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

  const ofTests = ({ partnerId }: PartnerSecret): PartnerSecret =>
    secret(partnerId, {
      name: `t-${partnerId}`,
      keys: [newApiKey({ test: true })],
      terms: { test: true },
    });
  const twice = (one: PartnerSecret): PartnerSecret[] => [
    one,
    secret(one.partnerId, { name: `${one.name}-b` }),
  ];

  test.each<[string, all: PartnerSecret[], stay: PartnerSecret[], left: number]>([
    ['4 partners', many(4), [], 2],
    ['41 partners', many(41), [], 21],
    ['20 partners with two Secrets each', many(20).flatMap(twice), [], 10],
    ['8 partners, also where those of tests stay', many(8), many(8).map(ofTests), 4],
  ])('one after another ends at most half of %s, by any leader', async (_, all, stay, left) => {
    await round([...all, ...stay]);
    for (let gone = 1; gone <= all.length; gone += 1) {
      nowMs += 400;
      if (gone % 7 === 0) leader = await leading(`leader ${gone}`);
      await round([...all.slice(gone), ...stay]);
    }
    const live = (await storedKeys(stores.db)).filter(({ terms }) => !terms.test);
    expect(new Set(live.map(({ partnerId }) => partnerId)).size).toBe(left);
    expect(told()).toHaveLength(1);
    // What comes back is no loss.
    await round([...all, ...stay]);
    expect(await stored()).toHaveLength(all.length + stay.length);
    expect(told()).toEqual([]);
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

describe('25 of 40 partners lose their keys', () => {
  /** What happens to the 15 others, or to all, in the ten minutes before. */
  type Before = (
    stay: readonly PartnerSecret[],
    go: readonly PartnerSecret[],
  ) => Promise<PartnerSecret[]>;
  const [many40, STAY] = [many(40), 15];
  const rotated: Before = async (stay, go) => {
    const fresh = stay.map(withKey);
    await round([...go, ...stay, ...fresh.map((one) => ({ ...one, name: `new-${one.name}` }))]);
    await round([...go, ...fresh]);
    return fresh;
  };
  const untouched: Before = (stay) => Promise.resolve([...stay]);

  test.each<[string, Before]>([
    ['nothing', untouched],
    ['the others rotate', rotated],
    [
      'one of the others has another key every 15 s',
      async ([one, ...others], go) => {
        for (let time = 0; time < 20; time += 1) {
          nowMs += 15_000;
          await round([withKey(one!), ...others, ...go]);
        }
        return [one!, ...others];
      },
    ],
    [
      'as many new partners come',
      async (stay, go) => {
        const fresh = Array.from({ length: 40 }, (_none, at) => secret(`new${at}`));
        await round([...stay, ...go, ...fresh]);
        return [...stay, ...fresh];
      },
    ],
    [
      'a new partner comes and goes every 15 s',
      async (stay, go) => {
        for (let time = 0; time < 20; time += 1) {
          nowMs += 15_000;
          await round([...stay, ...go, secret(`new${time}`)]);
          expect(told()).toEqual([]);
        }
        return [...stay];
      },
    ],
    [
      'the others and the 25 are renamed',
      async (stay, go) => {
        const renamed = (all: readonly PartnerSecret[]) =>
          all.map((one) => ({ ...one, partnerId: `renamed-${one.partnerId}` }));
        await round([...renamed(stay), ...renamed(go)]);
        expect(told()).toEqual([]);
        return renamed(stay);
      },
    ],
    [
      'two Secrets of other partners fight for one key',
      async ([one, two, ...others], go) => {
        const taken = { ...two!, data: { ...two!.data, more: one!.data['key-0']! } };
        for (let time = 0; time < 6; time += 1) {
          nowMs += 15_000;
          await round([taken, ...others, ...go]);
          await round([one!, two!, ...others, ...go]);
        }
        return [one!, two!, ...others];
      },
    ],
    [
      'some of the 25 go and return',
      async (stay, go) => {
        for (let time = 0; time < 3; time += 1) {
          await round([...stay, ...go.slice(12)]);
          expect(told()).toEqual([]);
          await round([...stay, ...go]);
        }
        return [...stay];
      },
    ],
    [
      'an operator ends 10 of the others',
      async (stay, go) => {
        const hashes = (await storedKeys(stores.db)).filter(({ partnerId }) =>
          stay.slice(0, 10).some((one) => one.partnerId === partnerId),
        );
        for (const { hash } of hashes) await store.revoke(hash);
        await round([...stay.slice(10), ...go]);
        expect(told()).toEqual([]);
        return stay.slice(10);
      },
    ],
  ])('%s: all stay, whether at once or one after another', async (_, before) => {
    for (const oneByOne of [false, true]) {
      await stores.empty();
      leader = await leading('first');
      await round(many40);
      nowMs += 11 * MINUTE_MS;
      const [stay, go] = [many40.slice(0, STAY), many40.slice(STAY)];
      const left = await before(stay, go);
      leader = await leading('second');
      const ids = (await storedKeys(stores.db)).map(({ partnerId }) => partnerId);
      const gone = new Set(ids.filter((id) => /p(1[5-9]|[23]\d)$/.test(id)));
      expect(gone.size).toBe(25);
      for (let at = 1; at < (oneByOne ? go.length : 0); at += 1) {
        nowMs += 400;
        const waiting = go.slice(at).filter(({ partnerId }) => gone.has(partnerId));
        await round([...left, ...waiting]);
      }
      await round(left);
      const kept = (await storedKeys(stores.db)).filter(({ partnerId }) => gone.has(partnerId));
      // One after another, half of the partners may go.
      if (oneByOne) expect(kept.length).toBeGreaterThanOrEqual(5);
      else expect(kept).toHaveLength(25);
      expect(told()).toHaveLength(1);
    }
  });

  test('a namespace that is deleted and made again with other keys leaves those alone', async () => {
    await round(many40);
    nowMs += 11 * MINUTE_MS;
    await round([]);
    expect(await stored()).toHaveLength(40);
    const again = many40.map(withKey);
    for (let at = 0; at <= 40; at += 8) await round(again.slice(0, at));
    const keys = new Set((await storedKeys(stores.db)).map(({ hash }) => hash));
    expect(keys).toEqual(new Set(again.map(hashIn)));
    expect(told()).toEqual([]);
  });

  test.each<[string, spend: (spent: PartnerSecret[]) => Promise<PartnerSecret[]>]>([
    [
      'has ended',
      (spent) =>
        Promise.resolve(
          spent.map((one) => ({ ...one, terms: { notAfter: later(clock.now(), -DAY_MS) } })),
        ),
    ],
    [
      'was revoked',
      async (spent) => {
        for (const one of spent) await store.revoke(hashIn(one));
        return spent;
      },
    ],
  ])(
    'a key that %s is none: a partner that keeps only such a key has lost all',
    async (_, spend) => {
      const spent = await spend(
        many40.map((one) => secret(one.partnerId, { name: `old-${one.name}` })),
      );
      await round([...many40, ...spent]);
      nowMs += 11 * MINUTE_MS;
      await round([...many40.slice(0, STAY), ...spent]);
      const hashes = (await storedKeys(stores.db)).map(({ hash }) => hash);
      for (const one of many40) expect(hashes).toContain(hashIn(one));
      expect(told()).toHaveLength(1);
      // Their own end is no loss.
      await round(many40);
      expect(told()).toEqual([]);
      expect(await stored()).toHaveLength(40);
    },
  );

  test('what the guard remembers is bounded by the partners, and ends after ten minutes', async () => {
    await round(many40);
    for (let time = 0; time < 20; time += 1) {
      nowMs += 15_000;
      await round([...many40.slice(0, 38), withKey(many40[38]!), secret(`new${time % 3}`)]);
    }
    const rows = async () => {
      const { ended = [], arrived = [] } = (await store.documents.read())!;
      return [ended.length, arrived.length];
    };
    const [ended, arrived] = await rows();
    expect(ended).toBeLessThanOrEqual(5);
    expect(arrived).toBeLessThanOrEqual(43);
    nowMs += 11 * MINUTE_MS;
    await round(many40);
    expect(await rows()).toEqual([2, 1]);
  });

  test('they are counted across leaders, one of which has a clock an hour behind', async () => {
    await round(many40);
    nowMs += 11 * MINUTE_MS;
    for (const [gone, byMs] of [
      [10, 0],
      [20, -61 * MINUTE_MS],
      [20, 61 * MINUTE_MS],
      [25, 0],
    ] as const) {
      leader = await leading(`leader ${gone} ${byMs}`);
      nowMs += byMs;
      await round([...many40.slice(gone), secret('new')]);
    }
    expect(told()).toHaveLength(1);
    expect(await stored()).toHaveLength(21);
  });
});

test('beyond the room the partners with most keys lose their newest, after a warning', async () => {
  const keys = Array.from({ length: 10_500 }, () => newApiKey());
  const others = [secret('small'), secret('large', { keys: keys.slice(0, 5_000) })];
  await round([...others, secret('larger', { keys: keys.slice(5_000, 9_000) })]);
  expect(codes()).toEqual(['keys_nearly_full']);
  await round([...others, secret('larger', { keys: keys.slice(5_000) }), secret('late')]);
  const left = Map.groupBy(await storedKeys(stores.db), ({ partnerId }) => partnerId);
  expect(Object.fromEntries([...left].map(([partner, { length }]) => [partner, length]))).toEqual({
    small: 1,
    large: 4_999,
    larger: 4_999,
    late: 1,
  });
  const kept = new Set(left.get('larger')!.map(({ hash }) => hash));
  for (const key of keys.slice(5_000, 9_000)) expect(kept).toContain(hashApiKey(key));
  expect(codes().filter((code) => code === 'too_many_keys')).toHaveLength(502);
  expect(problems.at(-1)).toMatchObject({ code: 'keys_nearly_full', source: { name: '' } });
});

test('a partner whose last key ends soon is counted beside a revoked one without an end', async () => {
  const registry = createRegistry('controller');
  leader = { ...leader, metrics: createControllerMetrics(registry) };
  const leaked = newApiKey();
  const ending = {
    ...secret('acme'),
    name: 'ending',
    terms: { notAfter: later(clock.now(), DAY_MS) },
  };
  const counted = async () => {
    await round([secret('acme', { keys: [leaked] }), ending]);
    const [value] =
      (await registry.getSingleMetric('partner_ingest_partners_keys_ending')?.get())?.values ?? [];
    return value?.value;
  };
  expect([await counted(), codes()]).toEqual([0, []]);
  await store.revoke(hashApiKey(leaked));
  expect([await counted(), codes()]).toEqual([1, ['key_revoked', 'keys_ending']]);
});

test('one Secret with 600 bad entries and one partner with 600 bad Secrets hide nothing of others', async () => {
  const all = many(20);
  await round(all);
  nowMs += 11 * MINUTE_MS;
  const bad = (at: number): string => `no key ${at}`;
  const entries = secret('a', { keys: Array.from({ length: 600 }, (_none, at) => bad(at)) });
  const secrets = Array.from({ length: 600 }, (_none, at) =>
    secret('b', { name: `b-${at}`, uid: `b-${at}`, keys: [bad(at)] }),
  );
  await round([entries, ...secrets, secret('late', { keys: [bad(0)] })]);
  await store.problems.keep(inTurn(problems));
  const kept = await store.problems.list();
  expect(kept).toHaveLength(500);
  expect(kept.slice(0, 4)).toMatchObject([
    { code: 'keys_would_end' },
    { partnerId: 'b', secret: 'read/b-0' },
    { partnerId: 'a', message: expect.stringMatching(/; 599 more like it$/) },
    { partnerId: 'late' },
  ]);
  // One entry less is the same problem.
  nowMs += MINUTE_MS;
  await round([{ ...entries, data: { only: entries.data['key-7']! } }]);
  await store.problems.keep(inTurn(problems));
  const [, after] = await store.problems.list();
  expect(after).toMatchObject({ partnerId: 'a', since: kept[2]!.since });
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

test('the lease has one holder at a time, also after a lost document or a leap of the clock', async () => {
  const { documents: lease } = store;
  expect(await lease.acquire('second')).toBe(false);
  expect(await lease.renew('first')).toBe(true);
  await lease.giveBack('first');
  expect(await lease.acquire('second')).toBe(true);
  expect(await lease.renew('first')).toBe(false);
  await expect(round(many(1))).rejects.toThrow(SupersededError);
  await expireAt(later(new Date(), DAY_MS));
  expect(await lease.acquire('third')).toBe(true);
  await documents().deleteMany({});
  expect(await lease.renew('third')).toBe(false);
});
