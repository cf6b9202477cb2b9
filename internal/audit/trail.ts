/** Who looked at personal data or changed something, when, what and why: collection `operator_audit`. */
import type { Db } from 'mongodb';
import { DAY_MS, later, type Clock } from '../platform/clock.ts';
import { newId } from '../platform/ids.ts';
import { ensureIndexes, type IndexDefinition } from '../platform/mongo-indexes.ts';
import { bounded } from '../platform/mongo-read.ts';
import { TRAIL_DAYS, TRAIL_SHOWN } from './limits.ts';

export const OPERATOR_AUDIT = 'operator_audit';

const indexes: readonly IndexDefinition[] = [
  { collection: OPERATOR_AUDIT, name: 'operator_audit_request', key: { requestId: 1 }, sparse: true },
  { collection: OPERATOR_AUDIT, name: 'operator_audit_expiry', key: { expiresAt: 1 }, expireAfterSeconds: 0 },
];

/** What was done. Nothing personal of an applicant stands in it, so that it survives an erasure. */
export interface Deed {
  readonly action: string;
  readonly requestId?: string;
  readonly accountId?: string;
  readonly partnerId?: string;
  /** The beginning of the SHA-256 of an API key. */
  readonly keyId?: string;
  /** Records it was about, where it was about more than one. */
  readonly count?: number;
}

/** One document of `operator_audit`. */
export interface TrailEntry extends Deed {
  readonly _id: string;
  readonly at: Date;
  readonly by: string;
  readonly why?: string;
  /** `by` is what the operator said with `--as`; nothing proves it. */
  readonly unproven?: true;
  /** `begun` stays where the command was cut off before its end: it may or may not have happened. */
  readonly result: 'begun' | 'done' | 'not_done';
  readonly expiresAt: Date;
}

export class Trail {
  readonly #db: Db;
  readonly #clock: Clock;
  readonly by: string;
  readonly #why: string | undefined;
  readonly #unproven: boolean;
  readonly #copy: (entry: Omit<TrailEntry, 'expiresAt'>) => void;
  #indexed: Promise<void> | undefined;

  /** `copy` gets each entry as it is written, and again when its result is known: for a place that the database's users cannot change. */
  constructor(options: {
    readonly db: Db;
    readonly clock: Clock;
    readonly by: string;
    readonly unproven: boolean;
    readonly why?: string;
    readonly copy: (entry: Omit<TrailEntry, 'expiresAt'>) => void;
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
    await this.#insert(deed, 'done');
  }

  /** Notes the deed, runs `act`, and notes how it ended. `act` tells whether it changed anything. */
  async record(deed: Deed, act: () => Promise<boolean>): Promise<boolean> {
    const begun = await this.#insert(deed, 'begun');
    const done = await act();
    const result = done ? 'done' : 'not_done';
    await this.#entries.updateOne({ _id: begun._id }, { $set: { result } });
    this.#copy({ ...begun, result });
    return done;
  }

  /** What operators did with a request, oldest first. */
  async ofRequest(requestId: string): Promise<TrailEntry[]> {
    const latest = await this.#entries.find({ requestId }, bounded).sort({ _id: -1 }).limit(TRAIL_SHOWN).toArray();
    return latest.toReversed();
  }

  async #insert(deed: Deed, result: TrailEntry['result']): Promise<Omit<TrailEntry, 'expiresAt'>> {
    this.#indexed ??= ensureIndexes(this.#db, indexes);
    await this.#indexed;
    const at = this.#clock.now();
    const entry = {
      _id: newId('opr'),
      at,
      by: this.by,
      ...deed,
      ...(this.#why === undefined ? {} : { why: this.#why }),
      ...(this.#unproven ? { unproven: true as const } : {}),
      result,
    };
    await this.#entries.insertOne({ ...entry, expiresAt: later(at, TRAIL_DAYS * DAY_MS) });
    this.#copy(entry);
    return entry;
  }
}
