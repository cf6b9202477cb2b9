/**
 * Random histories of Secrets, operators, two controllers, restores and clock leaps, on the real
 * store. A failure prints the shortest history that fails.
 */
import * as fc from 'fast-check';
import type { Db, Document } from 'mongodb';
import { expect, test } from '@jest/globals';
import { reconcileKeys } from '../../internal/controller/reconcile-partner-keys.ts';
import type { SecretList } from '../../internal/controller/secret-source.ts';
import { hashApiKey, newApiKey } from '../../internal/partner/api-key.ts';
import { KeyCache } from '../../internal/partner/key-cache.ts';
import {
  PARTNER_KEYS,
  SupersededError,
  type StoredKey,
} from '../../internal/partner/key-document.ts';
import type { PartnerSecret } from '../../internal/partner/key-secret.ts';
import { KeyStore } from '../../internal/partner/key-store.ts';
import { DAY_MS, later, systemClock } from '../../internal/platform/process/clock.ts';
import { createLogger } from '../../internal/platform/process/log.ts';
import { createControllerMetrics } from '../../internal/telemetry/metrics.ts';
import { createRegistry } from '../../internal/platform/process/registry.ts';
import { storedKeys } from '../support/stored-keys.ts';
import { storesOfFile } from '../support/test-stores.ts';

const HISTORIES = 20;
const SECRETS = 8;
const PARTNERS = 4;
const KEYS = Array.from({ length: 10 }, newApiKey);
const MINUTE_MS = 60_000;
const LEAPS_MS = [400, 400, 61 * MINUTE_MS, -61 * MINUTE_MS, 3 * DAY_MS, -3 * DAY_MS, 30 * DAY_MS];
const CONTROLLERS = ['one', 'two'] as const;
/** A round makes two reads and a write. */
const CALLS = 3;

/** How often each kind of moment comes. */
const KINDS = {
  apply: 6,
  delete: 3,
  status: 2,
  revoke: 2,
  flag: 1,
  wipe: 1,
  /** Secrets return with other uids. */
  reinstall: 1,
  backup: 1,
  restore: 1,
  lose: 1,
  /** The leader freezes before it writes `key`, until another one leads. */
  late: 3,
};
type Kind = keyof typeof KINDS;

const moment = fc.record({
  kind: fc.constantFrom(
    ...Object.entries(KINDS).flatMap(([kind, times]) => Array<Kind>(times).fill(kind as Kind)),
  ),
  slot: fc.nat(SECRETS - 1),
  key: fc.nat(KEYS.length - 1),
  status: fc.constantFrom('active', 'inactive', 'Active'),
  off: fc.boolean(),
  at: fc.integer({ min: 1, max: CALLS }),
  leaseByMs: fc.constantFrom(-DAY_MS, DAY_MS),
  byMs: fc.constantFrom(...LEAPS_MS),
  /** Says whether ingest reads the keys at that moment. */
  looks: fc.boolean(),
});
type Moment = typeof moment extends fc.Arbitrary<infer T> ? T : never;
const histories = fc.array(moment, { minLength: 5, maxLength: 20 });

const stores = await storesOfFile();

const log = createLogger('test', 'silent');

class History {
  readonly #secrets = new Map<number, PartnerSecret>();
  readonly #revoked = new Set<string>();
  readonly #disabled = new Set<string>();
  readonly #clock = { ...systemClock, now: () => later(new Date(0), this.#nowMs) };
  readonly #store = new KeyStore({ db: stores.db, clock: this.#clock });
  readonly #cache = new KeyCache({
    store: this.#store,
    clock: this.#clock,
    log,
    onLoad: () => {},
    onCurrent: () => (this.#current += 1),
  });
  #current = 0;
  #nowMs = Date.now();
  #installs = 0;
  #leader: (typeof CONTROLLERS)[number] = 'one';
  #backup: Document | undefined;
  /** Whether the last round kept keys of lost Secrets; key-rounds.test.ts shows when. */
  #lost = false;

  constructor() {
    for (let at = 0; at < SECRETS; at += 1) this.#apply(at, at);
  }

  /** Before the first complete round ingest knows no key. */
  async begin(): Promise<void> {
    await this.#lose();
    expect(this.#cache.loaded).toBe(false);
  }

  async play(now: Moment): Promise<void> {
    // No two moments may fall into the same millisecond.
    this.#nowMs += now.byMs + 1;
    await this.#do(now);
    const before = await storedKeys(stores.db);
    await this.#round();
    if (!now.looks) return;
    await this.#cache.refresh();
    await this.#judge(before);
  }

  async #do(what: Moment): Promise<void> {
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
        await this.#store.revoke(hashOf(what.key));
        this.#revoked.add(hashOf(what.key));
        break;
      case 'flag': {
        const partner = partnerOf(what.slot);
        await this.#store.disabled.change(partner, what.off, 'jane');
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
      case 'backup':
        this.#backup = (await documents().findOne()) ?? undefined;
        break;
      case 'restore':
        if (this.#backup !== undefined)
          await documents().replaceOne({}, this.#backup, { upsert: true });
        break;
      case 'lose':
        await this.#lose();
        break;
      case 'late':
        await this.#late(what);
        break;
    }
  }

  /** Ingest keeps its keys while the document is gone, empty or incomplete. */
  async #lose(): Promise<void> {
    await documents().deleteMany({});
    await this.#expectKept();
    expect(await this.#store.documents.acquire(this.#leader)).toBe(true);
    await this.#expectKept();
    await this.#reconcile(this.#leader, { ...this.#list(), complete: false });
    await this.#expectKept();
  }

  async #expectKept(): Promise<void> {
    const known = () => KEYS.filter((text) => this.#cache.lookup(text).known);
    const [before, current] = [known(), this.#current];
    await this.#cache.refresh();
    expect([known(), this.#current]).toEqual([before, current]);
    for (const text of before)
      expect(this.#cache.lookup(text)).toMatchObject({
        revoked: this.#revoked.has(hashApiKey(text)),
      });
  }

  async #late(what: Moment): Promise<void> {
    await this.#round();
    this.#apply(what.slot, what.key);
    const former = this.#leader;
    const list = this.#list();
    let after: unknown;
    const { db, stood } = standingStill(stores.db, what.at, async () => {
      this.#secrets.delete(what.slot);
      await documents().updateMany({}, { $set: { expiresAt: later(new Date(), what.leaseByMs) } });
      this.#leader = former === 'one' ? 'two' : 'one';
      expect(await this.#store.documents.acquire(this.#leader)).toBe(true);
      await this.#round();
      after = await documents().find().toArray();
    });
    const going = this.#reconcile(former, list, new KeyStore({ db, clock: this.#clock }));
    if (!stood()) await going.catch(() => {});
    if (!stood()) return;
    // The round may have had nothing to write.
    await going.catch((error: unknown) => expect(error).toBeInstanceOf(SupersededError));
    expect(await documents().find().toArray()).toEqual(after);
  }

  /** A leader takes a lost lease again. */
  async #round(): Promise<void> {
    try {
      await this.#reconcile(this.#leader, this.#list());
    } catch (error) {
      if (!(error instanceof SupersededError)) throw error;
      await documents().updateMany({}, { $set: { expiresAt: new Date(0) } });
      expect(await this.#store.documents.acquire(this.#leader)).toBe(true);
      await this.#reconcile(this.#leader, this.#list());
    }
  }

  async #reconcile(holder: string, list: SecretList, store = this.#store): Promise<void> {
    const { problems } = await reconcileKeys(list, {
      store,
      holder,
      allowPublished: false,
      clock: this.#clock,
      log,
      metrics: createControllerMetrics(createRegistry('controller')),
    });
    this.#lost = problems.some(({ code }) => code === 'keys_would_end');
  }

  #list(): SecretList {
    return {
      secrets: [...this.#secrets.values()],
      partners: [],
      problems: [],
      complete: true,
      asOf: this.#clock.now(),
    };
  }

  #apply(at: number, keyIndex: number): void {
    const data = { key: Buffer.from(KEYS[keyIndex]!).toString('base64') };
    const partnerId = partnerOf(at);
    const made = { namespace: 'keys', name: `s-${at}`, partnerId, status: undefined, data };
    const plain = { terms: {}, faults: [] };
    this.#secrets.set(at, { ...made, ...plain, ...this.#ids(at) });
  }

  #ids(at: number) {
    return { uid: `${this.#installs}-${at}`, createdAt: this.#clock.now() };
  }

  async #judge(before: readonly StoredKey[]): Promise<void> {
    const stored = new Map((await storedKeys(stores.db)).map((one) => [one.hash, one]));
    const isInSecrets = ({ hash }: StoredKey): boolean =>
      this.#secretsWith(KEYS.findIndex((text) => hashApiKey(text) === hash)).length > 0;
    // A revoked key is none.
    const works = (key: StoredKey): boolean => isInSecrets(key) && !this.#revoked.has(key.hash);
    const present = new Set([...stored.values()].filter(works).map(({ partnerId }) => partnerId));
    for (const [index, text] of KEYS.entries()) {
      const hash = hashOf(index);
      const found = this.#cache.lookup(text);
      const inSecrets = this.#secretsWith(index);
      const held = before.find((one) => one.hash === hash);
      const isGuarded =
        this.#lost &&
        held !== undefined &&
        !present.has(held.partnerId) &&
        !this.#revoked.has(hash);
      expect(found.known).toBe(isGuarded || inSecrets.length > 0);
      if (!found.known) continue;
      expect(found.revoked).toBe(this.#revoked.has(hash));
      const { source, partnerId, status } = stored.get(hash)!;
      expect(found).toMatchObject({
        partnerId,
        active: status === 'active' && !this.#disabled.has(partnerId),
      });
      if (isGuarded) continue;
      // A key belongs to one Secret and stays with it.
      const owner = inSecrets.find(({ name }) => name === source.name);
      const holds = inSecrets.some(({ name }) => name === held?.source.name);
      if (holds) expect(source.name).toBe(held?.source.name);
      expect([partnerId, status]).toEqual([owner?.partnerId, this.#statusOf(owner!)]);
    }
  }

  #secretsWith(keyIndex: number): readonly PartnerSecret[] {
    const data = Buffer.from(KEYS[keyIndex]!).toString('base64');
    return [...this.#secrets.values()].filter((secret) => secret.data['key'] === data);
  }

  #statusOf({ partnerId, status = 'active' }: PartnerSecret): string {
    const isOff = [...this.#secrets.values()].some(
      (one) => one.partnerId === partnerId && one.status === 'inactive',
    );
    return status === 'active' && !isOff ? 'active' : 'inactive';
  }
}

/** Calls that send nothing yet. */
const BUILDS: readonly (string | symbol)[] = ['collection', 'find', 'sort', 'limit'];

/** Runs `meanwhile` before the call `at`, counted from 1. */
function standingStill(
  real: Db,
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
          if (BUILDS.includes(name)) return slowed(call() as object);
          calls += 1;
          return calls === at ? meanwhile().then(call) : call();
        };
      },
    });
  return { db: slowed(real), stood: () => calls >= at };
}

const documents = () => stores.db.collection(PARTNER_KEYS);
const hashOf = (index: number): string => hashApiKey(KEYS[index]!);
const partnerOf = (at: number): string => `p${at % PARTNERS}`;

const always = {
  key: 0,
  status: 'active',
  off: false,
  at: 1,
  leaseByMs: DAY_MS,
  byMs: 400,
} as const;
/** A moment with what it needs beside its kind. */
const then = (kind: Kind, slot = 0, more: Partial<Moment> = {}): Moment => ({
  ...always,
  kind,
  slot,
  looks: false,
  ...more,
});
/** The clock leaps back, so a document is restored and changed under numbers that ingest knows. */
const restoredAfterALeap = [
  then('apply'),
  then('reinstall', 0, { byMs: -3 * DAY_MS }),
  then('backup'),
  then('delete', 0, { looks: true }),
  then('apply', 1),
  then('restore'),
  then('flag', 0, { looks: true }),
];
/** A revoked key stays revoked although the document of keys is gone. */
const revokedAndLost = [then('apply', 0, { looks: true }), then('revoke'), then('lose')];

test(
  `in ${HISTORIES} histories of restores and changes of leader, keys are active as Secrets and operators say`,
  async () => {
    await fc.assert(
      fc.asyncProperty(histories, async (moments) => {
        await stores.empty();
        const history = new History();
        await history.begin();
        for (const [at, one] of moments.entries())
          await history.play({ ...one, looks: one.looks || at === moments.length - 1 });
      }),
      { numRuns: HISTORIES, examples: [[restoredAfterALeap], [revokedAndLost]] },
    );
  },
  5 * MINUTE_MS,
);
