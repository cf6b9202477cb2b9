/** The lease of the controller that writes the keys, and a counter of changes. */
import type { ClientSession, Collection, Db } from 'mongodb';
import { withDeadline } from '../platform/deadline.ts';
import { defined } from '../platform/defined.ts';
import { bounded } from '../platform/mongo-read.ts';
import { isDuplicateKey } from '../platform/mongo.ts';

export const PARTNER_KEY_SYNC = 'partner_key_sync';
const KEYS = 'keys';

/** Only the database's clock measures it. */
const LEASE_MS = 15_000;
const CALL_TIMEOUT_MS = 3_000;

interface SyncDocument {
  readonly _id: typeof KEYS;
  readonly holder: string;
  readonly term: number;
  readonly expiresAt: Date;
  readonly changes: number;
  /** A restored database repeats numbers, but not times. */
  readonly changedAt?: Date;
  /** When a leader had first compared all keys. */
  readonly syncedAt?: Date;
}

/** A later term has begun, so this writer must stop. */
export class SupersededError extends Error {
  override readonly name = 'SupersededError';
}

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
   * Undefined while another process holds the lease. `lastTerm` is called only if the document is
   * gone, because no term may repeat.
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

  async renew(holder: string, term: number): Promise<boolean> {
    const renewal = this.#documents.updateOne({ _id: KEYS, holder, term }, [
      { $set: { expiresAt: expiry } },
    ]);
    return (await call(renewal)).matchedCount === 1;
  }

  async giveBack(holder: string, term: number): Promise<void> {
    await call(
      this.#documents.updateOne({ _id: KEYS, holder, term }, { $set: { expiresAt: FREE } }),
    );
  }

  /** Rejects with `SupersededError` if a later term has begun. */
  async mustBeCurrent(term: number): Promise<void> {
    const current = await this.#documents.findOne({ _id: KEYS, term }, bounded);
    if (current === null) throw new SupersededError();
  }

  /** An operator's change has no `term`. */
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
