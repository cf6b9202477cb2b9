/** The lease, for controllers of the installation's source of keys only. */
import {
  foreignWords,
  sourceWords,
  type InstallationStore,
  type KeysOf,
} from '../installation/installation.ts';
import type { KeyDocuments } from '../partner/key-document.ts';
import { later, type Clock } from '../platform/process/clock.ts';

/** How often a refused controller says so, and looks again at keys that nobody claimed. */
const SAY_EVERY_MS = 10_000;
/** A refused controller that has not said so for this long is gone. */
const SAID_WITHIN_MS = 60_000;

interface OwnedLeaseTools {
  readonly documents: Pick<KeyDocuments, 'take' | 'renew' | 'giveBack' | 'sources'>;
  readonly store: InstallationStore;
  readonly mine: KeysOf;
  readonly clock: Clock;
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

  readonly faults = (): readonly string[] =>
    this.#owner === undefined
      ? []
      : [`${foreignWords(this.#owner, this.#tools.mine)}; it does not lead and changes no key`];

  readonly warnings = (): readonly string[] =>
    this.#refused === undefined
      ? []
      : [
          `a controller of ${sourceWords(this.#refused)} uses this database too and was refused: give its release a database of its own`,
        ];

  async take(holder: string): Promise<boolean> {
    return (await this.#isOurs(holder)) && this.#tools.documents.take(holder);
  }

  async renew(holder: string): Promise<boolean> {
    if (await this.#isOurs(holder)) return this.#tools.documents.renew(holder);
    await this.giveBack(holder);
    return false;
  }

  giveBack(holder: string): Promise<void> {
    return this.#tools.documents.giveBack(holder);
  }

  async #isOurs(holder: string): Promise<boolean> {
    const { store, mine, clock } = this.#tools;
    const found = await store.read();
    if (found === undefined) return false;
    const { keysOf, refused } = found;
    if (keysOf === mine) {
      const isRecent = refused !== undefined && refused.at > later(clock.now(), -SAID_WITHIN_MS);
      this.#refused = isRecent ? refused.keysOf : undefined;
      this.#owner = undefined;
      return true;
    }
    this.#refused = undefined;
    const nowMs = clock.monotonicMs();
    const isSaid = this.#owner !== undefined && nowMs - this.#saidAtMs < SAY_EVERY_MS;
    if (isSaid && (keysOf === undefined || keysOf === this.#owner)) return false;
    if (keysOf === undefined) {
      const others = await this.#othersKeys(holder);
      if (others === 'unknown') return false;
      if (others === undefined) return store.claim(mine);
      this.#owner = others;
    } else this.#owner = keysOf;
    this.#saidAtMs = nowMs;
    await store.noteRefused(mine);
    return false;
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
    if (most === undefined) return leader === undefined || leader === holder ? undefined : 'unknown';
    const isOurs = most === 'directory' ? mine.startsWith(most) : most === mine;
    return isOurs ? undefined : most;
  }
}
