/** Who looked at personal data or changed something, when, what and why: collection `operator_audit`. */
import type { Db } from 'mongodb';
import { DAY_MS, later, type Clock } from '../platform/clock.ts';
import { backoffMs, pause } from '../platform/deadline.ts';
import { newId } from '../platform/ids.ts';
import { isDuplicateKey, isLockConflict } from '../platform/mongo.ts';
import { ensureIndexes, type IndexDefinition } from '../platform/mongo-indexes.ts';
import { bounded } from '../platform/mongo-read.ts';
import { checkChain, digestOf, type ChainReport } from './chain.ts';
import type { Deed, TrailCopy, TrailEntry } from './entry.ts';
import { LINK_BACKOFF, LINK_TRIES, TRAIL_DAYS, TRAIL_SHOWN } from './limits.ts';

export const OPERATOR_AUDIT = 'operator_audit';

const indexes: readonly IndexDefinition[] = [
  { collection: OPERATOR_AUDIT, name: 'operator_audit_request', key: { requestId: 1 }, sparse: true },
  // One entry for each place in the chain: of two operators at once, one takes the next place.
  { collection: OPERATOR_AUDIT, name: 'operator_audit_seq', key: { seq: 1 }, unique: true, sparse: true },
  { collection: OPERATOR_AUDIT, name: 'operator_audit_expiry', key: { expiresAt: 1 }, expireAfterSeconds: 0 },
];

export class Trail {
  readonly #db: Db;
  readonly #clock: Clock;
  readonly by: string;
  readonly #why: string | undefined;
  readonly #unproven: boolean;
  readonly #copy: (entry: TrailCopy) => void;
  #indexed: Promise<void> | undefined;

  /** `copy` gets each entry once it is written: for a place that the database's users cannot change. */
  constructor(options: {
    readonly db: Db;
    readonly clock: Clock;
    readonly by: string;
    readonly unproven: boolean;
    readonly why?: string;
    readonly copy: (entry: TrailCopy) => void;
  }) {
    this.#db = options.db;
    this.#clock = options.clock;
    this.by = options.by;
    this.#why = options.why;
    this.#unproven = options.unproven;
    this.#copy = options.copy;
  }

  get #entries() {
    return this.#db.collection<TrailEntry>(OPERATOR_AUDIT);
  }

  /** Notes that personal data is about to be shown; it must not be shown if this fails. */
  async revealed(deed: Deed): Promise<void> {
    await this.#append(deed, { result: 'done' });
  }

  /** Notes the deed, runs `act`, and notes how it ended. `act` tells whether it changed anything. */
  async record(deed: Deed, act: () => Promise<boolean>): Promise<boolean> {
    const begun = await this.#append(deed, { result: 'begun' });
    const done = await act();
    await this.#append(deed, { result: done ? 'done' : 'not_done', ends: begun._id });
    return done;
  }

  /** What operators did with a request, oldest first: one entry for each deed, with the time it began and how it ended. */
  async ofRequest(requestId: string): Promise<TrailEntry[]> {
    const latest = await this.#entries.find({ requestId }, bounded).sort({ _id: -1 }).limit(TRAIL_SHOWN).toArray();
    const results = new Map(latest.flatMap(({ ends, result }) => (ends === undefined ? [] : [[ends, result]])));
    return latest
      .filter(({ ends }) => ends === undefined)
      .map((entry) => ({ ...entry, result: results.get(entry._id) ?? entry.result }))
      .toReversed();
  }

  /** Whether an entry was changed or removed since it was written. Entries from before the chain are not in it. */
  check(): Promise<ChainReport> {
    return checkChain(this.#entries.find({ seq: { $gt: 0 } }, bounded).sort({ seq: 1 }), this.#clock.now());
  }

  async #append(deed: Deed, ending: Pick<TrailEntry, 'result' | 'ends'>): Promise<TrailEntry> {
    this.#indexed ??= ensureIndexes(this.#db, indexes);
    await this.#indexed;
    for (let tries = 1; ; tries += 1) {
      const entry = this.#entryAfter(await this.#last(), deed, ending);
      try {
        await this.#entries.insertOne(entry);
      } catch (error) {
        if (tries === LINK_TRIES || !(isDuplicateKey(error) || isLockConflict(error))) throw error;
        // At random, so that those who met do not meet again.
        await pause(backoffMs(tries, LINK_BACKOFF));
        continue;
      }
      this.#copy({ ...entry, sha256: digestOf(entry) });
      return entry;
    }
  }

  async #last(): Promise<TrailEntry | undefined> {
    const [last] = await this.#entries
      .find({ seq: { $gt: 0 } }, bounded)
      .sort({ seq: -1 })
      .limit(1)
      .toArray();
    return last;
  }

  #entryAfter(last: TrailEntry | undefined, deed: Deed, ending: Pick<TrailEntry, 'result' | 'ends'>): TrailEntry {
    const at = this.#clock.now();
    // Never before the one before it, whose operator's clock may be ahead: entries are to expire in the chain's order.
    const expiresMs = Math.max(later(at, TRAIL_DAYS * DAY_MS).getTime(), last?.expiresAt.getTime() ?? 0);
    return {
      _id: newId('opr'),
      seq: (last?.seq ?? 0) + 1,
      ...(last === undefined ? {} : { previous: { sha256: digestOf(last), expiresAt: last.expiresAt } }),
      at,
      by: this.by,
      ...deed,
      ...(this.#why === undefined ? {} : { why: this.#why }),
      ...(this.#unproven ? { unproven: true as const } : {}),
      ...ending,
      expiresAt: new Date(expiresMs),
    };
  }
}
