/**
 * Idempotency keys: a request with a used key gets the result of the first request.
 *
 * A unique index binds a key to one record, until its withdrawal or expiry frees the key. A later
 * request adopts the first record, which then cannot be withdrawn. So the later answer may be 202
 * although the first was 500.
 */
import { hash } from 'node:crypto';
import type { Collection } from 'mongodb';
import { NotDurableError, writeTogether } from '../platform/stores/mongo.ts';
import type { SubmissionRecord } from './submission.ts';

/**
 * The scope is the owner (a partner, or its tests), so rotating an API key changes nothing
 * (docs/decisions/0019). Another operation must put its name and a line feed before the key; owners
 * and keys contain none.
 */
export const idempotencyDigest = (owner: string, key: string): string =>
  hash('sha256', `${owner}\n${key}`, 'hex');

const firstFields = {
  idempotencyDigest: 1,
  bodySha256: 1,
  erasedAt: 1,
  adopted: 1,
  state: 1,
  version: 1,
  traceparent: 1,
} as const;
type First = Pick<SubmissionRecord, '_id' | (keyof typeof firstFields & keyof SubmissionRecord)>;

export interface Bound {
  readonly kind: 'replayed' | 'mismatched' | 'erased';
  readonly first: First;
}

/** Undefined for a record whose key is free. May adopt records even if it rejects. */
export async function adoptFirst(
  collection: Collection<SubmissionRecord>,
  records: readonly SubmissionRecord[],
  timeoutMs: number,
): Promise<(Bound | undefined)[]> {
  const updates = records.map(({ idempotencyDigest: digest, bodySha256 }) => ({
    q: { idempotencyDigest: digest, bodySha256 },
    u: { $set: { adopted: true } },
  }));
  const { durable } = await writeTogether(collection, { updates }, timeoutMs);
  if (!durable) throw new NotDurableError('no majority acknowledged the adoption in time');
  const found: First[] = await collection
    .find(
      { idempotencyDigest: { $in: records.map((record) => record.idempotencyDigest!) } },
      { readConcern: 'majority', projection: firstFields, maxTimeMS: timeoutMs },
    )
    .toArray();
  const byDigest = new Map(found.map((first) => [first.idempotencyDigest, first]));
  return records.map((record) => boundTo(byDigest.get(record.idempotencyDigest), record));
}

function boundTo(first: First | undefined, { bodySha256 }: SubmissionRecord): Bound | undefined {
  if (first === undefined) return undefined;
  if (first.erasedAt !== undefined) return { kind: 'erased', first };
  if (first.bodySha256 !== bodySha256) return { kind: 'mismatched', first };
  // Another record took the key after the update, so the caller tries again.
  return first.adopted === true ? { kind: 'replayed', first } : undefined;
}
