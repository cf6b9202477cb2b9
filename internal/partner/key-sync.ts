/**
 * One document beside the keys: the lease of the controller that writes them, and a counter of
 * their changes.
 */
import type { ClientSession, Collection, Db } from 'mongodb';
import { withDeadline } from '../platform/deadline.ts';
import { defined } from '../platform/defined.ts';
import { bounded } from '../platform/mongo-read.ts';
import { isDuplicateKey } from '../platform/mongo.ts';

export const PARTNER_KEY_SYNC = 'partner_key_sync';
const KEYS = 'keys';

/**
 * A lease that is not renewed for this long is free. It is measured by the database's clock alone.
 */
export const LEASE_MS = 15_000;
/** One call about the lease, or for the counter. */
const CALL_TIMEOUT_MS = 3_000;

interface SyncDocument {
  readonly _id: typeof KEYS;
  /** Who took the lease last. */
  readonly holder: string;
  /** Grows each time a controller takes the lease. */
  readonly term: number;
  readonly expiresAt: Date;
  readonly changes: number;
  /**
   * Tells two changes with the same number apart: a restored database counts some of them again.
   */
  readonly changedAt?: Date;
  /**
   * When a leader first had compared all keys in its term; absent before the first complete round.
   */
  readonly syncedAt?: Date;
}

/** A later term has begun: this writer must stop. */
export class SupersededError extends Error {
  override readonly name = 'SupersededError';
}

/** A lease that expired at this time is free. */
const FREE = new Date(0);
const expiry = { $add: ['$$NOW', LEASE_MS] };

export class KeySync {
  readonly #db: Db;

  constructor(db: Db) {
    this.#db = db;
  }

  get #documents(): Collection<SyncDocument> {
    return this.#db.collection<SyncDocument>(PARTNER_KEY_SYNC);
  }

  /**
   * The term of a lease that was free, or that this holder took already and was not answered;
   * undefined while another holds it. `lastTerm` is asked only where the document is gone: no term
   * may come twice.
   */
  async take(holder: string, lastTerm: () => Promise<number>): Promise<number | undefined> {
    if ((await call(this.#documents.findOne({ _id: KEYS }))) === null) {
      const made = {
        _id: KEYS,
        holder: '',
        term: await lastTerm(),
        expiresAt: FREE,
        changes: 0,
      } as const;
      await call(this.#documents.insertOne(made)).catch((error: unknown) => {
        if (!isDuplicateKey(error)) throw error;
      });
    }
    const taking = this.#documents.findOneAndUpdate(
      { _id: KEYS, $or: [{ holder }, { $expr: { $lt: ['$expiresAt', '$$NOW'] } }] },
      [{ $set: { holder: { $literal: holder }, term: { $add: ['$term', 1] }, expiresAt: expiry } }],
      { returnDocument: 'after' },
    );
    return (await call(taking))?.term;
  }

  /** False when another has the lease. */
  async renew(holder: string, term: number): Promise<boolean> {
    const renewal = this.#documents.updateOne({ _id: KEYS, holder, term }, [
      { $set: { expiresAt: expiry } },
    ]);
    return (await call(renewal)).matchedCount === 1;
  }

  /** Lets another controller take the lease at once. */
  async giveBack(holder: string, term: number): Promise<void> {
    await call(
      this.#documents.updateOne({ _id: KEYS, holder, term }, { $set: { expiresAt: FREE } }),
    );
  }

  /** Rejects with `SupersededError` when a later term has begun, or the document is gone. */
  async mustBeCurrent(term: number): Promise<void> {
    const current = await this.#documents.findOne({ _id: KEYS, term }, bounded);
    if (current === null) throw new SupersededError();
  }

  /** Counts a change of keys that is durable; `term` is undefined for an operator's. */
  async count(term: number | undefined, { synced }: { readonly synced: boolean }): Promise<void> {
    const { matchedCount } = await this.#documents.updateOne(
      { _id: KEYS, ...defined({ term }) },
      {
        $inc: { changes: 1 },
        $currentDate: { changedAt: true, ...(synced ? { syncedAt: true } : {}) },
      },
    );
    if (matchedCount === 0 && term !== undefined) throw new SupersededError();
  }

  /** What differs after every change; undefined before a controller has compared all keys. */
  async version(session?: ClientSession): Promise<string | undefined> {
    const projection = { changes: 1, changedAt: 1, syncedAt: 1 };
    const options = {
      projection,
      maxTimeMS: CALL_TIMEOUT_MS,
      ...defined({ session }),
    };
    const found = await call(this.#documents.findOne({ _id: KEYS }, options));
    return found?.syncedAt === undefined
      ? undefined
      : `${found.changes} ${found.changedAt?.getTime()}`;
  }
}

const call = <T>(promise: Promise<T>): Promise<T> =>
  withDeadline(promise, CALL_TIMEOUT_MS, 'a call about the keys');
