/** The lease, for controllers of the installation's source of keys only. */
import {
  foreignFault,
  sourceWords,
  type InstallationDocument,
  type InstallationStore,
  type KeysOf,
} from '../installation/installation.ts';
import type { KeyDocuments } from '../partner/key-document.ts';
import { later, type Clock } from '../platform/process/clock.ts';
import { wordsOf, type Fault } from '../platform/process/fault.ts';
import type { Logger } from '../platform/process/log.ts';

/** How often a refused controller says so, and looks again at keys that nobody claimed. */
const SAY_EVERY_MS = 10_000;
/** A refused controller that has not said so for this long is gone. */
const SAID_WITHIN_MS = 60_000;

interface OwnedLeaseTools {
  readonly documents: Pick<KeyDocuments, 'acquire' | 'renew' | 'giveBack' | 'sources'>;
  readonly store: InstallationStore;
  readonly mine: KeysOf;
  readonly clock: Clock;
  readonly log: Logger;
}

export class OwnedLease {
  readonly #tools: OwnedLeaseTools;
  /** The other source whose database this is. */
  #owner: string | undefined;
  #saidAtMs = -Infinity;
  #refused: KeysOf | undefined;

  constructor(tools: OwnedLeaseTools) {
    this.#tools = tools;
  }

  readonly faults = (): readonly Fault[] => {
    if (this.#owner === undefined) return [];
    const { words, ...fault } = foreignFault(this.#owner, this.#tools.mine);
    return [{ ...fault, words: `${words}; it does not lead and changes no key` }];
  };

  readonly warnings = (): readonly Fault[] => {
    if (this.#refused === undefined) return [];
    const words = `a controller of ${sourceWords(this.#refused)} uses this database too and was refused: give its release a database of its own`;
    return [{ code: 'foreign_controller', of: this.#refused, words }];
  };

  async acquire(holder: string): Promise<boolean> {
    return (await this.#isOurs(holder)) && this.#tools.documents.acquire(holder);
  }

  /** Takes no longer than one call, since a leader must notice in time that it cannot renew. */
  async renew(holder: string): Promise<boolean> {
    const { store, documents, mine } = this.#tools;
    const [found, isRenewed] = await Promise.all([store.read(), documents.renew(holder)]);
    if (found?.keysOf === mine) this.#showOurs(found);
    // The document was deleted and made again.
    else if (found !== undefined && found.keysOf === undefined) store.claim(mine).catch(() => {});
    else if (found !== undefined) {
      // Without an answer the lease ends by itself.
      documents.giveBack(holder).catch(() => {});
      return false;
    }
    return isRenewed;
  }

  giveBack(holder: string): Promise<void> {
    return this.#tools.documents.giveBack(holder);
  }

  async #isOurs(holder: string): Promise<boolean> {
    const { store, mine, clock } = this.#tools;
    const found = await store.read();
    if (found === undefined) return false;
    const { keysOf } = found;
    if (keysOf === mine) {
      this.#showOurs(found);
      return true;
    }
    const nowMs = clock.monotonicMs();
    const isSaid = this.#owner !== undefined && nowMs - this.#saidAtMs < SAY_EVERY_MS;
    if (isSaid && (keysOf === undefined || keysOf === this.#owner)) return false;
    if (keysOf === undefined) {
      const others = await this.#othersKeys(holder);
      if (others === 'unknown') return false;
      if (others === undefined) return store.claim(mine);
      this.#show(others, undefined);
    } else this.#show(keysOf, undefined);
    this.#saidAtMs = nowMs;
    await store.noteRefused(mine).catch(() => {});
    return false;
  }

  #showOurs({ refused }: InstallationDocument): void {
    const since = later(this.#tools.clock.now(), -SAID_WITHIN_MS);
    this.#show(undefined, refused !== undefined && refused.at > since ? refused.keysOf : undefined);
  }

  #show(owner: string | undefined, refused: KeysOf | undefined): void {
    const before = new Set(wordsOf([...this.faults(), ...this.warnings()]));
    this.#owner = owner;
    this.#refused = refused;
    for (const reason of wordsOf([...this.faults(), ...this.warnings()]))
      if (!before.has(reason)) this.#tools.log.warn({ reason }, 'two installations, one database');
  }

  /**
   * Whose keys an older version stored, if they are not ours. `unknown` while there are none and
   * another controller leads, which may be about to write some.
   */
  async #othersKeys(holder: string): Promise<string | undefined> {
    const { documents, mine, clock } = this.#tools;
    const { sources, leader } = await documents.sources(clock.now());
    const counts = Map.groupBy(sources, ({ namespace, uid }) =>
      // Only the id of a Secret from a folder has the name of its file.
      uid.includes('#') ? 'directory' : `namespace:${namespace}`,
    );
    const [[most] = []] = [...counts].toSorted(([, one], [, other]) => other.length - one.length);
    if (most === undefined)
      return leader === undefined || leader === holder ? undefined : 'unknown';
    const isOurs = most === 'directory' ? mine.startsWith(most) : most === mine;
    return isOurs ? undefined : most;
  }
}
