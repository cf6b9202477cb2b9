/** All keys in memory, for ingest: a look-up is one hash and one map access, and never waits for anything. */
import type { Clock } from '../platform/clock.ts';
import { pause } from '../platform/deadline.ts';
import type { Logger } from '../platform/log.ts';
import { hashApiKey } from './api-key.ts';
import type { KeyStore } from './key-store.ts';

/** Keys are read again this often even if nobody says that they changed. */
const REFRESH_EVERY_MS = 15_000;
/** Until the first complete load, which the pod's readiness waits for. */
const FIRST_LOAD_RETRY_MS = 500;
/** How often the last use of keys is written down. */
const TOUCH_EVERY_MS = 30_000;

export type KeyLookup =
  { readonly known: false } | { readonly known: true; readonly partnerId: string; readonly active: boolean };

interface CachedKey {
  readonly hash: string;
  readonly partnerId: string;
  readonly active: boolean;
}

export class KeyCache {
  readonly #store: KeyStore;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #onRefresh: (keys: number, at: Date) => void;
  readonly #stop = new AbortController();
  #keys: ReadonlyMap<string, CachedKey> = new Map();
  readonly #used = new Set<string>();
  #loaded = false;
  #refreshing: Promise<void> | undefined;
  #refreshAgain = false;

  constructor(options: {
    readonly store: KeyStore;
    readonly clock: Clock;
    readonly log: Logger;
    readonly onRefresh: (keys: number, at: Date) => void;
  }) {
    this.#store = options.store;
    this.#clock = options.clock;
    this.#log = options.log;
    this.#onRefresh = options.onRefresh;
  }

  /** Whether a complete set of keys has been loaded once. */
  get loaded(): boolean {
    return this.#loaded;
  }

  lookup(key: string): KeyLookup {
    const found = this.#keys.get(hashApiKey(key));
    if (found === undefined) return { known: false };
    this.#used.add(found.hash);
    return { known: true, partnerId: found.partnerId, active: found.active };
  }

  /** Keeps the keys fresh until `close()`. */
  start(): void {
    void this.#refreshForever();
    void this.#touchForever();
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
      const { keys, synced } = await this.#store.load();
      if (!synced) return;
      this.#keys = new Map(
        keys.map(({ _id: hash, partnerId, status }) => [hash, { hash, partnerId, active: status === 'active' }]),
      );
      if (!this.#loaded) this.#log.info({ keys: keys.length }, 'partner keys loaded');
      this.#loaded = true;
      this.#onRefresh(keys.length, this.#clock.now());
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
