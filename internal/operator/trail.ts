/** Who looked at personal data or changed something, when, what and why: collection `operator_audit`. */
import type { Db } from 'mongodb';
import { later, type Clock } from '../platform/clock.ts';
import { newId } from '../platform/ids.ts';
import { ensureIndexes, type IndexDefinition } from '../platform/mongo.ts';
import { RefusedError } from './refused.ts';
import { READ_DEADLINE_MS, TRAIL_DAYS, TRAIL_SHOWN } from './limits.ts';

export const OPERATOR_AUDIT = 'operator_audit';

const DAY_MS = 86_400_000;

const indexes: readonly IndexDefinition[] = [
  { collection: OPERATOR_AUDIT, name: 'operator_audit_request', key: { requestId: 1 }, sparse: true },
  { collection: OPERATOR_AUDIT, name: 'operator_audit_expiry', key: { expiresAt: 1 }, expireAfterSeconds: 0 },
];

/** What was done. Nothing personal of an applicant stands in it, so that it survives an erasure. */
export interface Deed {
  readonly action: string;
  readonly requestId?: string;
  readonly accountId?: string;
  /** Records it was about, where it was about more than one. */
  readonly count?: number;
}

/** One document of `operator_audit`. */
export interface TrailEntry extends Deed {
  readonly _id: string;
  readonly at: Date;
  readonly by: string;
  readonly why?: string;
  /** `begun` stays where the command was cut off before its end: it may or may not have happened. */
  readonly result: 'begun' | 'done' | 'not_done';
  readonly expiresAt: Date;
}

export class Trail {
  readonly #db: Db;
  readonly #clock: Clock;
  readonly by: string;
  readonly #why: string | undefined;
  #indexed: Promise<void> | undefined;

  constructor(options: { readonly db: Db; readonly clock: Clock; readonly by: string; readonly why?: string }) {
    this.#db = options.db;
    this.#clock = options.clock;
    this.by = options.by;
    this.#why = options.why;
  }

  get #entries() {
    return this.#db.collection<TrailEntry>(OPERATOR_AUDIT);
  }

  /** Notes that personal data is about to be shown; it must not be shown if this fails. */
  async revealed(deed: Deed): Promise<void> {
    await this.#insert(deed, 'done');
  }

  /** Does something only after it is written down, and writes down how it ended. `act` says whether it happened. */
  async record(deed: Deed, act: () => Promise<boolean>): Promise<boolean> {
    const id = await this.#insert(deed, 'begun');
    const ended = (result: TrailEntry['result']) => this.#entries.updateOne({ _id: id }, { $set: { result } });
    try {
      const done = await act();
      await ended(done ? 'done' : 'not_done');
      return done;
    } catch (error) {
      if (error instanceof RefusedError) await ended('not_done');
      throw error;
    }
  }

  /** What operators did with a request, oldest first. */
  async ofRequest(requestId: string): Promise<TrailEntry[]> {
    const latest = await this.#entries
      .find({ requestId })
      .sort({ _id: -1 })
      .limit(TRAIL_SHOWN)
      .maxTimeMS(READ_DEADLINE_MS)
      .toArray();
    return latest.toReversed();
  }

  async #insert(deed: Deed, result: TrailEntry['result']): Promise<string> {
    this.#indexed ??= ensureIndexes(this.#db, indexes);
    await this.#indexed;
    const at = this.#clock.now();
    const _id = newId('opr');
    await this.#entries.insertOne({
      _id,
      at,
      by: this.by,
      ...deed,
      ...(this.#why === undefined ? {} : { why: this.#why }),
      result,
      expiresAt: later(at, TRAIL_DAYS * DAY_MS),
    });
    return _id;
  }
}
