/** Rounds of the controller on the stored keys: what a partial list may change, and what most keys being gone leads to. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { reconcilePartnerKeys } from '../../internal/controller/reconcile-partner-keys.ts';
import type { SecretList } from '../../internal/controller/secret-source.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { HELD_REMOVAL_MS, HeldRemovals } from '../../internal/partner/held-removals.ts';
import type { PartnerSecret, Problem } from '../../internal/partner/key-secret.ts';
import { KeyStore } from '../../internal/partner/key-store.ts';
import { later, systemClock } from '../../internal/platform/clock.ts';
import { createLogger } from '../../internal/platform/log.ts';
import { createControllerMetrics } from '../../internal/telemetry/metrics.ts';
import { createRegistry } from '../../internal/telemetry/registry.ts';
import { openTestStores, type TestStores } from '../support/test-stores.ts';

const writer = { owner: 'test', term: 1 };

let stores: TestStores;
let store: KeyStore;
let held: HeldRemovals;
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
  held = new HeldRemovals({ db: stores.db, clock });
  await store.claimTerm(writer);
});

const secret = (partnerId: string, of: Partial<PartnerSecret> & { readonly keys?: readonly string[] } = {}) => ({
  namespace: 'read',
  name: `s-${partnerId}`,
  uid: `u-${partnerId}`,
  createdAt: new Date(0),
  partnerId,
  status: undefined,
  data: Object.fromEntries(
    (of.keys ?? [newApiKey()]).map((key, index) => [`key-${index}`, Buffer.from(key).toString('base64')]),
  ),
  ...of,
});

/** A list of these; with `unread`, one that could not read that namespace. */
function round(secrets: readonly PartnerSecret[], unread?: string) {
  const list: SecretList = {
    secrets,
    problems: [],
    complete: unread === undefined,
    provesGone: ({ namespace }) => namespace !== unread,
    asOf: new Date(),
  };
  return reconcilePartnerKeys(list, writer, {
    store,
    allowPublished: false,
    held,
    clock,
    log: createLogger('test', 'silent'),
    metrics: createControllerMetrics(createRegistry('controller')),
    notify: () => Promise.resolve(),
    report: (all) => (problems = all),
  });
}

const active = async (): Promise<number> =>
  (await store.load()).keys.filter(({ status }) => status === 'active').length;

describe('a partial list', () => {
  test('a new key of a partner that something unread has switched off stays out', async () => {
    const banned = secret('banned');
    const off = secret('banned', { namespace: 'unread', name: 'off', status: 'inactive', keys: [] });
    await round([banned, off]);
    expect(await active()).toBe(0);
    await round([banned, secret('banned', { name: 'more' }), secret('fresh')], 'unread');
    expect((await store.load()).keys.map(({ partnerId, status }) => `${partnerId} ${status}`).toSorted()).toEqual([
      'banned inactive',
      'fresh active',
    ]);
  });

  test('a new key of a partner whose other keys are in what could not be read waits', async () => {
    const known = secret('acme', { namespace: 'unread' });
    await round([known]);
    const fresh = secret('acme', { name: 'more' });
    await round([fresh], 'unread');
    expect(await active()).toBe(1);
    await round([known, fresh]);
    expect(await active()).toBe(2);
  });

  test('a key of something unread stays, and goes once that has been read without it', async () => {
    const [here, there] = [secret('here'), secret('there', { namespace: 'unread' })];
    await round([here, there]);
    await round([here], 'unread');
    expect(await active()).toBe(2);
    await round([here], 'another');
    expect(await active()).toBe(1);
  });

  test('a key that is claimed by an inactive partner meanwhile stays its own', async () => {
    const key = newApiKey();
    await round([secret('owner', { namespace: 'unread', keys: [key] })]);
    await round([secret('claims', { status: 'inactive', keys: [key] })], 'unread');
    expect((await store.load()).keys).toMatchObject([{ partnerId: 'owner', status: 'active' }]);
  });
});

describe('the brake', () => {
  const many = (count: number): PartnerSecret[] => Array.from({ length: count }, (_none, index) => secret(`p${index}`));

  test('most keys gone at once: they stay for ten minutes, loudly, and then go', async () => {
    await round(many(7));
    expect(await round([])).toEqual({ complete: true, held: 7 });
    expect(await active()).toBe(7);
    expect(problems.map(({ code }) => code)).toEqual(Array.from({ length: 7 }, () => 'removal_held'));
    nowMs += HELD_REMOVAL_MS - 1;
    await round([]);
    expect(await active()).toBe(7);
    nowMs += 1;
    expect(await round([])).toEqual({ complete: true, held: 0 });
    expect(await active()).toBe(0);
    expect(problems).toEqual([]);
    await round([]);
    expect(await held.list()).toEqual([]);
  });

  test('an operator who confirms ends the wait, but only for what was held then', async () => {
    const secrets = many(12);
    await round(secrets);
    await round(secrets.slice(7));
    const [shown] = await held.list();
    expect(shown?.keys).toHaveLength(7);
    await round([]);
    // Five more are most of what was left: all of them wait anew, and the older confirmation is void.
    expect(await held.confirm({ ...shown!, since: new Date(0) })).toBe(false);
    expect(await active()).toBe(12);
    const [both] = await held.list();
    expect(both?.keys).toHaveLength(12);
    expect(await held.confirm(both!)).toBe(true);
    await round([]);
    expect(await active()).toBe(0);
  });

  test('single removals are never held, not even beside held ones', async () => {
    const secrets = many(12);
    await round(secrets);
    await round(secrets.slice(7));
    expect(await active()).toBe(12);
    expect(await round(secrets.slice(8))).toEqual({ complete: true, held: 7 });
    expect(await active()).toBe(11);
    // They are back: nothing is held any more.
    await round(secrets);
    expect(await active()).toBe(12);
    expect(await held.list()).toEqual([]);
  });

  test.each([
    [3, 3],
    [8, 4],
  ])('of %i keys, %i go at once', async (all, gone) => {
    const secrets = many(all);
    await round(secrets);
    await round(secrets.slice(gone));
    expect(await active()).toBe(all - gone);
  });
});
