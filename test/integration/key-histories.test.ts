/**
 * Random histories of partner Secrets, operators and leaders: which keys count after each step, on
 * the real store. A failure prints the shortest history that fails.
 */
import * as fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { ENDED_FREELY } from '../../internal/controller/limits.ts';
import { KeyRounds } from '../../internal/controller/reconcile-partner-keys.ts';
import { hashApiKey, newApiKey } from '../../internal/partner/api-key.ts';
import { wantedKeys, type PartnerSecret } from '../../internal/partner/key-secret.ts';
import { DEFER_MS, KeyStore, type PartnerKey } from '../../internal/partner/key-store.ts';
import { PARTNER_KEY_SYNC } from '../../internal/partner/key-sync.ts';
import { DAY_MS, later, systemClock } from '../../internal/platform/clock.ts';
import { createLogger } from '../../internal/platform/log.ts';
import { createControllerMetrics } from '../../internal/telemetry/metrics.ts';
import { createRegistry } from '../../internal/telemetry/registry.ts';
import { openTestStores, type TestStores } from '../support/test-stores.ts';

const HISTORIES = 20;
const SECRETS = 8;
const PARTNERS = 4;
const KEYS = Array.from({ length: 10 }, newApiKey);
const MINUTE_MS = 60_000;
const LEAPS_MS = [
  400,
  400,
  400,
  11 * MINUTE_MS,
  61 * MINUTE_MS,
  DAY_MS + 1,
  3 * DAY_MS,
  30 * DAY_MS,
];

const slot = fc.nat(SECRETS - 1);
const step = fc.oneof(
  { weight: 6, arbitrary: fc.record({ kind: fc.constant('apply'), slot, key: fc.nat(9) }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('delete'), slot }) },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant('status'),
      slot,
      status: fc.constantFrom('active', 'inactive', 'Active'),
    }),
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('revoke'), key: fc.nat(9) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('flag'), slot, off: fc.boolean() }) },
  // Everything is deleted, or comes again with other uids, as after a reinstall.
  { weight: 3, arbitrary: fc.record({ kind: fc.constantFrom('wipe', 'reinstall', 'confirm') }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('leader') }) },
);
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;
const histories = fc.array(fc.tuple(step, fc.constantFrom(...LEAPS_MS)), {
  minLength: 5,
  maxLength: 20,
});

let stores: TestStores;
beforeAll(async () => {
  stores = await openTestStores();
});
afterAll(() => stores.close());

class History {
  readonly #secrets = new Map<number, PartnerSecret>();
  readonly #revoked = new Set<string>();
  readonly #disabled = new Set<string>();
  readonly #ends: { readonly at: number; readonly count: number }[] = [];
  readonly #store: KeyStore;
  readonly #clock = { ...systemClock, now: () => later(new Date(0), this.#nowMs) };
  #nowMs = Date.now();
  #installs = 0;
  #rounds: KeyRounds | undefined;

  constructor() {
    this.#store = new KeyStore({ db: stores.db, clock: this.#clock });
    for (let at = 0; at < SECRETS; at += 1) this.#apply(at, at);
  }

  async play([what, byMs]: readonly [Step, number]): Promise<void> {
    const before = this.#rounds === undefined ? [] : await this.#store.all();
    this.#nowMs += byMs;
    await this.#do(what);
    this.#rounds ??= await this.#lead();
    await this.#rounds.round({
      secrets: [...this.#secrets.values()],
      problems: [],
      complete: true,
      provesGone: () => true,
      asOf: this.#clock.now(),
    });
    await this.#judge(before);
  }

  async #do(what: Step): Promise<void> {
    switch (what.kind) {
      case 'apply':
        this.#apply(what.slot, what.key);
        break;
      case 'delete':
        this.#secrets.delete(what.slot);
        break;
      case 'status': {
        const secret = this.#secrets.get(what.slot);
        if (secret !== undefined) this.#secrets.set(what.slot, { ...secret, status: what.status });
        break;
      }
      case 'revoke':
        if (await this.#store.revoke(hashOf(what.key))) this.#revoked.add(hashOf(what.key));
        break;
      case 'flag': {
        const partner = partnerOf(what.slot);
        if (what.off) await this.#store.disable(partner, 'jane');
        else await this.#store.enable(partner, 'jane');
        this.#disabled[what.off ? 'add' : 'delete'](partner);
        break;
      }
      case 'wipe':
        this.#secrets.clear();
        break;
      case 'reinstall':
        this.#installs += 1;
        for (const [at, secret] of this.#secrets)
          this.#secrets.set(at, { ...secret, ...this.#ids(at) });
        break;
      case 'confirm':
        await this.#store.confirm((await this.#store.deferred()).map(({ _id }) => _id));
        break;
      case 'leader':
        this.#rounds = await this.#lead();
        break;
    }
  }

  #apply(at: number, key: number): void {
    const data = { key: Buffer.from(KEYS[key]!).toString('base64') };
    const partnerId = partnerOf(at);
    const made = { namespace: 'keys', name: `s-${at}`, partnerId, status: undefined, data };
    this.#secrets.set(at, { ...made, ...this.#ids(at) });
  }

  #ids(at: number) {
    return { uid: `${this.#installs}-${at}`, createdAt: this.#clock.now() };
  }

  async #lead(): Promise<KeyRounds> {
    await stores.db
      .collection(PARTNER_KEY_SYNC)
      .updateMany({}, { $set: { expiresAt: new Date(0) } });
    const term = (await this.#store.takeLease(`leader ${this.#nowMs}`))!;
    await this.#store.raise(term);
    return new KeyRounds(term, {
      store: this.#store,
      allowPublished: false,
      clock: this.#clock,
      log: createLogger('test', 'silent'),
      metrics: createControllerMetrics(createRegistry('controller')),
      report: () => {},
    });
  }

  async #judge(before: readonly PartnerKey[]): Promise<void> {
    const owners = new Map(
      before
        .filter(({ status }) => status !== 'removed')
        .map(({ _id, partnerId }) => [_id, partnerId]),
    );
    const { keys: wanted } = wantedKeys([...this.#secrets.values()], {
      ownerOf: (hash) => owners.get(hash),
    });
    const now = this.#clock.now().getTime();
    const active = new Map(activeOf(await this.#store.all()).map((key) => [key._id, key]));
    for (const hash of this.#revoked) expect(active.has(hash)).toBe(false);
    for (const { hash, partnerId, status, source } of wanted.values()) {
      if (status !== 'active' || this.#revoked.has(hash)) continue;
      expect(active.get(hash)).toMatchObject({ partnerId, source });
      expect(active.get(hash)?.deferredAt).toBeUndefined();
    }
    for (const key of active.values()) {
      if (wanted.get(key._id)?.status === 'active') continue;
      // It outlives its Secret for ten minutes at most.
      expect(now - (key.deferredAt?.getTime() ?? 0)).toBeLessThan(DEFER_MS);
    }
    this.#judgeEnds(activeOf(before), active, now);
    const loaded = await this.#store.load();
    expect([...loaded!.disabled].toSorted()).toEqual([...this.#disabled].toSorted());
    expect(loaded!.keys.filter(({ status }) => status === 'active').length).toBe(active.size);
  }

  /** Single ends are free; a round never ends most keys at first sight. */
  #judgeEnds(
    before: readonly PartnerKey[],
    active: ReadonlyMap<string, PartnerKey>,
    now: number,
  ): void {
    const gone = before.filter(({ _id }) => !active.has(_id) && !this.#revoked.has(_id));
    const atFirstSight = gone.filter(({ deferredAt }) => deferredAt === undefined).length;
    if (atFirstSight > ENDED_FREELY) expect(atFirstSight * 2).toBeLessThanOrEqual(before.length);
    this.#ends.push({ at: now, count: gone.length });
    const lately = this.#ends.filter(({ at }) => now - at < DEFER_MS);
    const ends = lately.reduce((sum, { count }) => sum + count, 0);
    const deferred = [...active.values()].filter((key) => key.deferredAt?.getTime() === now).length;
    if (deferred > 0) expect(ends + deferred).toBeGreaterThan(ENDED_FREELY);
  }
}

const activeOf = (keys: readonly PartnerKey[]): readonly PartnerKey[] =>
  keys.filter(({ status, revokedAt }) => status === 'active' && revokedAt === undefined);
const hashOf = (key: number): string => hashApiKey(KEYS[key]!);
const partnerOf = (at: number): string => `p${at % PARTNERS}`;

test(
  `${HISTORIES} histories: keys count as their Secrets and operators say, and most never end at once`,
  async () => {
    await fc.assert(
      fc.asyncProperty(histories, async (steps) => {
        await stores.empty();
        const history = new History();
        for (const one of steps) await history.play(one);
      }),
      { numRuns: HISTORIES },
    );
  },
  5 * MINUTE_MS,
);
