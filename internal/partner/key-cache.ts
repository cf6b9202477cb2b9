/** Holds all keys in memory, so that a look-up in ingest never waits. */
import type { Clock } from '../platform/process/clock.ts';
import type { Logger } from '../platform/process/log.ts';
import type { Loops } from '../platform/process/loop.ts';
import { hashApiKey, isTestKey, keyIdOf } from './api-key.ts';
import type { KeyDocument } from './key-document.ts';
import type { KeyStore } from './key-store.ts';
import { addressCheck, type KeyTerms } from './key-terms.ts';

/** A change takes effect within a second. */
const LOOK_EVERY_MS = 500;
const LOOK_FAILS_AFTER_MS = 10_000;
const TOUCH_EVERY_MS = 30_000;
const TOUCH_FAILS_AFTER_MS = 90_000;

interface KnownKey {
  readonly known: true;
  readonly keyId: string;
  readonly partnerId: string;
  readonly active: boolean;
  readonly terms: KeyTerms;
  readonly admits: (address: string) => boolean;
}
export type KeyLookup =
  | { readonly known: false }
  | (KnownKey & {
      readonly revoked: boolean;
      /** The key's prefix contradicts its Secret's mode; possible with a digest. */
      readonly otherMode: boolean;
    });

interface KeyCacheTools {
  readonly store: KeyStore;
  readonly clock: Clock;
  readonly log: Logger;
  readonly onLoad: (document: KeyDocument) => void;
  readonly onCurrent: (at: Date) => void;
}

export class KeyCache {
  readonly #tools: KeyCacheTools;
  #keys: ReadonlyMap<string, KnownKey> = new Map();
  #revoked: ReadonlyMap<string, Date> = new Map();
  #disabled: ReadonlySet<string> = new Set();
  readonly #used = new Set<string>();
  #version: number | undefined;
  #failure: unknown;

  constructor(tools: KeyCacheTools) {
    this.#tools = tools;
  }

  get loaded(): boolean {
    return this.#version !== undefined;
  }

  lookup(key: string): KeyLookup {
    const hash = hashApiKey(key);
    const found = this.#keys.get(hash);
    if (found === undefined) return { known: false };
    this.#used.add(hash);
    const active = found.active && !this.#disabled.has(found.partnerId);
    const otherMode = isTestKey(key) !== (found.terms.test === true);
    return { ...found, active, revoked: this.#revoked.has(hash), otherMode };
  }

  /** Reads keys once `mayRead` resolves. */
  start(loops: Pick<Loops<'keys' | 'key_uses'>, 'start'>, mayRead: Promise<unknown>): void {
    loops.start({
      name: 'keys',
      everyMs: LOOK_EVERY_MS,
      failsAfterMs: LOOK_FAILS_AFTER_MS,
      run: async () => {
        await mayRead;
        await this.refresh();
      },
    });
    loops.start({
      name: 'key_uses',
      everyMs: TOUCH_EVERY_MS,
      failsAfterMs: TOUCH_FAILS_AFTER_MS,
      run: () => this.touch(),
    });
  }

  /** The error of the last `refresh`; undefined if it succeeded. */
  get failure(): unknown {
    return this.#failure;
  }

  /** Keeps the keys in memory while they cannot be read. */
  async refresh(): Promise<void> {
    const { store, clock, onCurrent } = this.#tools;
    const askedAt = clock.now();
    try {
      const [revoked, flagged] = await Promise.all([store.revoked(), store.disabled.list()]);
      const disabled = flagged.map(({ _id }) => _id);
      // Revoked keys and disabled partners count at once, even if reading the keys fails.
      this.#revoked = new Map([...this.#revoked, ...revoked]);
      this.#disabled = new Set([...this.#disabled, ...disabled]);
      const version = await store.documents.version();
      const isNew = version !== undefined && version !== this.#version;
      const document = isNew ? await store.documents.read() : undefined;
      this.#failure = undefined;
      // Of an emptied database: keys in memory stay valid, and revoked ones stay revoked.
      if (version === undefined || (isNew && document?.syncedAt === undefined)) return;
      this.#revoked = revoked;
      this.#disabled = new Set(disabled);
      if (document !== undefined) this.#use(document);
      onCurrent(askedAt);
    } catch (error) {
      this.#failure = error;
      throw error;
    }
  }

  #use(document: KeyDocument): void {
    const { keys, version } = document;
    const { log, onLoad } = this.#tools;
    this.#keys = new Map(
      keys.map(({ hash, partnerId, status, terms }) => [
        hash,
        {
          known: true,
          keyId: keyIdOf(hash),
          partnerId,
          active: status === 'active',
          terms,
          admits: addressCheck(terms),
        },
      ]),
    );
    if (this.#version === undefined) log.info({ keys: keys.length }, 'partner keys loaded');
    this.#version = version;
    onLoad(document);
  }

  /** Writes when the keys were last used. */
  async touch(): Promise<void> {
    if (this.#used.size === 0) return;
    const { store, clock } = this.#tools;
    const hashes = [...this.#used];
    this.#used.clear();
    try {
      await store.touch(hashes, clock.now());
    } catch (error) {
      for (const hash of hashes) this.#used.add(hash);
      throw error;
    }
  }
}
