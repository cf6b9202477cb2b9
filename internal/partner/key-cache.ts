/** All keys in memory, for ingest: a look-up is one hash and one map access, and never waits for anything. */
import type { Clock } from '../platform/clock.ts';
import { pause } from '../platform/deadline.ts';
import type { Logger } from '../platform/log.ts';
import { hashApiKey, keyIdOf } from './api-key.ts';
import type { KeyStore, LoadedKeys } from './key-store.ts';
import { addressCheck, type KeyTerms } from './key-terms.ts';

/** Keys are read again this often even if nobody says that they changed. */
const REFRESH_EVERY_MS = 15_000;
/** Revocations are looked for this often: in effect within a second, without Redis and without a controller. */
const REVOCATIONS_EVERY_MS = 500;
/** Until the first complete load, which the pod's readiness waits for. */
const FIRST_LOAD_RETRY_MS = 500;
/** Ids of keys in one line of the log. */
const UNCLAIMED_TOLD = 10;
/** How often the last use of keys is written down. */
const TOUCH_EVERY_MS = 30_000;

interface KnownKey {
  readonly known: true;
  readonly partnerId: string;
  readonly active: boolean;
  readonly terms: KeyTerms;
  /** Whether the key counts from this address. */
  readonly admits: (address: string) => boolean;
}
export type KeyLookup = { readonly known: false } | KnownKey;

export class KeyCache {
  readonly #store: KeyStore;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #onRefresh: (loaded: LoadedKeys, at: Date) => void;
  readonly #onRemovedUse: () => void;
  readonly #stop = new AbortController();
  #keys: ReadonlyMap<string, KnownKey> = new Map();
  /** Removed not long ago, with their partners. */
  #removed: ReadonlyMap<string, string> = new Map();
  /** Those of which the log has told that they are used. */
  #toldRemoved = new Set<string>();
  readonly #used = new Set<string>();
  #loaded = false;
  #revocations = 0;
  #unclaimed = 0;
  #refreshing: Promise<void> | undefined;
  #refreshAgain = false;

  constructor(options: {
    readonly store: KeyStore;
    readonly clock: Clock;
    readonly log: Logger;
    readonly onRefresh: (loaded: LoadedKeys, at: Date) => void;
    /** A request came with a key that was removed not long ago. */
    readonly onRemovedUse: () => void;
  }) {
    this.#store = options.store;
    this.#clock = options.clock;
    this.#log = options.log;
    this.#onRefresh = options.onRefresh;
    this.#onRemovedUse = options.onRemovedUse;
  }

  /** Whether a complete set of keys has been loaded once. */
  get loaded(): boolean {
    return this.#loaded;
  }

  lookup(key: string): KeyLookup {
    const hash = hashApiKey(key);
    const found = this.#keys.get(hash);
    if (found === undefined) {
      this.#noteRemoved(hash);
      return { known: false };
    }
    this.#used.add(hash);
    return found;
  }

  #noteRemoved(hash: string): void {
    const partner = this.#removed.get(hash);
    if (partner === undefined) return;
    this.#used.add(hash);
    this.#onRemovedUse();
    if (this.#toldRemoved.has(hash)) return;
    this.#toldRemoved.add(hash);
    this.#log.warn({ key: keyIdOf(hash), partner }, 'a removed key is still used');
  }

  /** Keeps the keys fresh until `close()`. */
  start(): void {
    void this.#refreshForever();
    void this.#touchForever();
    void this.#followRevocations();
  }

  /** Reads the keys again, now. Calls while a read is under way share one further read. */
  refresh(): Promise<void> {
    if (this.#refreshing !== undefined) {
      this.#refreshAgain = true;
      return this.#refreshing;
    }
    this.#refreshing = this.#refreshUntilCurrent().finally(() => {
      this.#refreshing = undefined;
    });
    return this.#refreshing;
  }

  async close(): Promise<void> {
    this.#stop.abort();
    await this.#touch().catch(() => {});
  }

  async #refreshUntilCurrent(): Promise<void> {
    do {
      this.#refreshAgain = false;
      await this.#load();
    } while (this.#refreshAgain);
  }

  /** Keys stay in force when they cannot be read, and also when the marker is gone: an emptied store revokes nothing. */
  async #load(): Promise<void> {
    try {
      const all = await this.#store.load();
      const { keys, removed } = all;
      if (!all.synced) return;
      this.#revocations = all.revocations;
      this.#tellUnclaimed(all);
      this.#keys = new Map(
        keys.map(({ _id, partnerId, status, terms = {} }) => [
          _id,
          { known: true, partnerId, active: status === 'active', terms, admits: addressCheck(terms) },
        ]),
      );
      this.#removed = new Map(removed.map(({ _id, partnerId }) => [_id, partnerId]));
      this.#toldRemoved = new Set([...this.#toldRemoved].filter((hash) => this.#removed.has(hash)));
      if (!this.#loaded) this.#log.info({ keys: keys.length }, 'partner keys loaded');
      this.#loaded = true;
      this.#onRefresh(all, this.#clock.now());
    } catch (error) {
      this.#log.debug({ err: error }, 'partner keys could not be read; the ones in memory stay in force');
    }
  }

  async #refreshForever(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      await this.refresh();
      await pause(this.#loaded ? REFRESH_EVERY_MS : FIRST_LOAD_RETRY_MS, this.#stop.signal);
    }
  }

  /** Tells each time when there are more of them. */
  #tellUnclaimed({ unclaimed }: LoadedKeys): void {
    if (unclaimed.length > this.#unclaimed) {
      const ids = unclaimed.slice(0, UNCLAIMED_TOLD).map(({ _id }) => keyIdOf(_id));
      this.#log.error(
        { keys: unclaimed.length, ids },
        'keys of an owner that no controller has claimed do not count: who wrote them?',
      );
    }
    this.#unclaimed = unclaimed.length;
  }

  async #followRevocations(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      await pause(REVOCATIONS_EVERY_MS, this.#stop.signal);
      const isNew = await this.#store.revocations().then(
        (count) => count !== this.#revocations,
        () => false,
      );
      if (isNew && this.#loaded) await this.refresh();
    }
  }

  async #touchForever(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      await pause(TOUCH_EVERY_MS, this.#stop.signal);
      await this.#touch().catch((error: unknown) => this.#log.debug({ err: error }, 'last use of keys not written'));
    }
  }

  async #touch(): Promise<void> {
    if (this.#used.size === 0) return;
    const hashes = [...this.#used];
    this.#used.clear();
    await this.#store.touch(hashes, this.#clock.now());
  }
}
