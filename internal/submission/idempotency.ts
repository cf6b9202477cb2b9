/**
 * Idempotency keys: a request whose key is bound already gets the fate of the first one with this
 * key.
 *
 * A live record has its key alone, by a unique index; its withdrawal frees the key. Whoever finds
 * the key taken adopts the record: from then on it can't be withdrawn, so the answer may say 202
 * although the first request was in doubt.
 */
import { hash } from 'node:crypto';
import type { Collection } from 'mongodb';
import { NotDurableError, updateTogether } from '../platform/mongo.ts';
import type { SubmissionRecord } from './submission.ts';

/**
 * What is stored of a key. The scope is the partner, so that a key rotation changes nothing
 * (docs/decisions/0019).
 */
export function idempotencyDigest(partnerId: string, key: string): string {
  // A partner's id has no line feed. One call of `hash` takes a fifth of the processor time of an
  // HMAC.
  return hash('sha256', `${partnerId}\n${key}`, 'hex');
}

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

/** The record that has the key, and what that means for the request that comes second. */
export interface Bound {
  readonly kind: 'replayed' | 'mismatched' | 'erased';
  readonly first: First;
}

/**
 * Adopts the record of each one's key if its body is the same, and says what was found: undefined
 * where the key is free again. When it rejects, records may be adopted.
 */
export async function adoptFirst(
  collection: Collection<SubmissionRecord>,
  records: readonly SubmissionRecord[],
  timeoutMs: number,
): Promise<(Bound | undefined)[]> {
  const { durable } = await updateTogether(
    collection,
    records.map(({ idempotencyDigest: digest, bodySha256 }) => ({
      q: { idempotencyDigest: digest, bodySha256 },
      u: { $set: { adopted: true } },
    })),
    timeoutMs,
  );
  if (!durable) throw new NotDurableError('no majority acknowledged the adoption in time');
  const found: First[] = await collection
    .find(
      { idempotencyDigest: { $in: records.map((record) => record.idempotencyDigest!) } },
      { readConcern: 'majority', projection: firstFields },
    )
    .toArray();
  const byDigest = new Map(found.map((first) => [first.idempotencyDigest, first]));
  return records.map((record) => boundTo(byDigest.get(record.idempotencyDigest), record));
}

function boundTo(first: First | undefined, { bodySha256 }: SubmissionRecord): Bound | undefined {
  if (first === undefined) return undefined;
  if (first.erasedAt !== undefined) return { kind: 'erased', first };
  if (first.bodySha256 !== bodySha256) return { kind: 'mismatched', first };
  // Another record has got the key since the update, so it is looked at once more.
  return first.adopted === true ? { kind: 'replayed', first } : undefined;
}
