/** Holds all keys in memory, so that a look-up in ingest never waits. */
import type { Clock } from '../platform/clock.ts';
import { pause, withDeadline } from '../platform/deadline.ts';
import type { Logger } from '../platform/log.ts';
import { hashApiKey, keyIdOf } from './api-key.ts';
import type { KeyStore, LoadedKeys } from './key-store.ts';
import { addressCheck, type KeyTerms } from './key-terms.ts';

/** A change takes effect within a second. */
const LOOK_EVERY_MS = 500;
const LOAD_TIMEOUT_MS = 10_000;
const TOUCH_EVERY_MS = 30_000;

interface KnownKey {
  readonly known: true;
  readonly partnerId: string;
  readonly active: boolean;
  readonly terms: KeyTerms;
  readonly admits: (address: string) => boolean;
}
export type KeyLookup = { readonly known: false } | KnownKey;

export class KeyCache {
  readonly #store: KeyStore;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #onLoad: (loaded: LoadedKeys) => void;
  readonly #onCurrent: (at: Date) => void;
  readonly #onRemovedUse: () => void;
  readonly #stop = new AbortController();
  #keys: ReadonlyMap<string, KnownKey> = new Map();
  #removed: ReadonlyMap<string, string> = new Map();
  #toldRemoved = new Set<string>();
  readonly #used = new Set<string>();
  #version: string | undefined;
  #failure: unknown;

  constructor(options: {
    readonly store: KeyStore;
    readonly clock: Clock;
    readonly log: Logger;
    readonly onLoad: (loaded: LoadedKeys) => void;
    readonly onCurrent: (at: Date) => void;
    readonly onRemovedUse: () => void;
  }) {
    this.#store = options.store;
    this.#clock = options.clock;
    this.#log = options.log;
    this.#onLoad = options.onLoad;
    this.#onCurrent = options.onCurrent;
    this.#onRemovedUse = options.onRemovedUse;
  }

  get loaded(): boolean {
    return this.#version !== undefined;
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

  start(): void {
    void this.#refreshForever();
    void this.#touchForever();
  }

  async close(): Promise<void> {
    this.#stop.abort();
    await this.#touch().catch(() => {});
  }

  /** Why the last look failed; undefined if it did not. */
  get failure(): unknown {
    return this.#failure;
  }

  /** Keeps the keys in memory while they cannot be read. */
  async refresh(): Promise<void> {
    const askedAt = this.#clock.now();
    try {
      const version = await this.#store.sync.version();
      const isNew = version !== undefined && version !== this.#version;
      const loaded = isNew
        ? await withDeadline(this.#store.load(), LOAD_TIMEOUT_MS, 'reading the keys')
        : undefined;
      this.#failure = undefined;
      // An emptied database ends no key.
      if (version === undefined || (isNew && loaded === undefined)) return;
      if (loaded !== undefined) this.#take(loaded);
      this.#onCurrent(askedAt);
    } catch (error) {
      this.#failure = error;
      this.#log.debug(
        { err: error },
        'partner keys could not be read; the ones in memory stay active',
      );
    }
  }

  #take(loaded: LoadedKeys): void {
    const { keys, removed, disabled, version } = loaded;
    this.#keys = new Map(
      keys.map(({ _id, partnerId, status, terms = {} }) => [
        _id,
        {
          known: true,
          partnerId,
          active: status === 'active' && !disabled.has(partnerId),
          terms,
          admits: addressCheck(terms),
        },
      ]),
    );
    this.#removed = new Map(removed.map(({ _id, partnerId }) => [_id, partnerId]));
    this.#toldRemoved = new Set([...this.#toldRemoved].filter((hash) => this.#removed.has(hash)));
    if (this.#version === undefined) this.#log.info({ keys: keys.length }, 'partner keys loaded');
    this.#version = version;
    this.#onLoad(loaded);
  }

  async #refreshForever(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      await this.refresh();
      await pause(LOOK_EVERY_MS, this.#stop.signal);
    }
  }

  async #touchForever(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      await pause(TOUCH_EVERY_MS, this.#stop.signal);
      await this.#touch().catch((error: unknown) =>
        this.#log.debug({ err: error }, 'last use of keys not written'),
      );
    }
  }

  async #touch(): Promise<void> {
    if (this.#used.size === 0) return;
    const hashes = [...this.#used];
    this.#used.clear();
    await this.#store.touch(hashes, this.#clock.now());
  }
}
