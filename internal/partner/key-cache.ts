/**
 * All keys in memory, for ingest: a look-up is one hash and one map access, and never waits for
 * anything.
 */
import type { Clock } from '../platform/clock.ts';
import { pause, withDeadline } from '../platform/deadline.ts';
import type { Logger } from '../platform/log.ts';
import { hashApiKey, keyIdOf } from './api-key.ts';
import type { KeyStore, LoadedKeys } from './key-store.ts';
import { addressCheck, type KeyTerms } from './key-terms.ts';

/**
 * How often ingest asks whether the keys have changed: a change counts within a second, without any
 * other store.
 */
const LOOK_EVERY_MS = 500;
/** Reading all keys. */
const LOAD_TIMEOUT_MS = 10_000;
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
  readonly #onLoad: (loaded: LoadedKeys) => void;
  readonly #onCurrent: (at: Date) => void;
  readonly #onRemovedUse: () => void;
  readonly #stop = new AbortController();
  #keys: ReadonlyMap<string, KnownKey> = new Map();
  /** Removed not long ago, with their partners. */
  #removed: ReadonlyMap<string, string> = new Map();
  /** Those of which the log has told that they are used. */
  #toldRemoved = new Set<string>();
  readonly #used = new Set<string>();
  /** Of the keys in memory; undefined before the first complete set. */
  #version: string | undefined;

  constructor(options: {
    readonly store: KeyStore;
    readonly clock: Clock;
    readonly log: Logger;
    readonly onLoad: (loaded: LoadedKeys) => void;
    /** The keys in memory were the stored ones at this time. */
    readonly onCurrent: (at: Date) => void;
    /** A request came with a key that was removed not long ago. */
    readonly onRemovedUse: () => void;
  }) {
    this.#store = options.store;
    this.#clock = options.clock;
    this.#log = options.log;
    this.#onLoad = options.onLoad;
    this.#onCurrent = options.onCurrent;
    this.#onRemovedUse = options.onRemovedUse;
  }

  /** Whether a complete set of keys has been loaded once. */
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

  /** Keeps the keys fresh until `close()`. */
  start(): void {
    void this.#refreshForever();
    void this.#touchForever();
  }

  async close(): Promise<void> {
    this.#stop.abort();
    await this.#touch().catch(() => {});
  }

  /**
   * Reads the keys again if they have changed. They stay as they are while they cannot be read, or
   * their marker is gone.
   */
  async refresh(): Promise<void> {
    const askedAt = this.#clock.now();
    try {
      const version = await this.#store.sync.version();
      // An emptied database ends no key.
      if (version === undefined) return;
      if (version !== this.#version) {
        const loaded = await withDeadline(this.#store.load(), LOAD_TIMEOUT_MS, 'reading the keys');
        if (loaded === undefined) return;
        this.#take(loaded);
      }
      this.#onCurrent(askedAt);
    } catch (error) {
      this.#log.debug(
        { err: error },
        'partner keys could not be read; the ones in memory stay active',
      );
    }
  }

  #take(loaded: LoadedKeys): void {
    const { keys, removed, version } = loaded;
    this.#keys = new Map(
      keys.map(({ _id, partnerId, status, terms = {} }) => [
        _id,
        { known: true, partnerId, active: status === 'active', terms, admits: addressCheck(terms) },
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
