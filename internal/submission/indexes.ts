/** Indexes of `requests` and `rate_limited`. */
import type { IndexDefinition } from '../platform/mongo-indexes.ts';
import { RATE_LIMITED } from './over-limit.ts';
import { SUBMISSIONS } from './submission.ts';

export const submissionIndexes: readonly IndexDefinition[] = [
  // Only open records have `dueAt`, so the index is as small as the backlog.
  {
    collection: SUBMISSIONS,
    name: 'requests_due',
    // The partner lets a search skip partners on hold by the index alone.
    key: { state: 1, dueAt: 1, partnerId: 1 },
    partialFilterExpression: { dueAt: { $exists: true } },
  },
  // A partial index is a fifth cheaper for inserts in DocumentDB than a sparse one.
  {
    collection: SUBMISSIONS,
    name: 'requests_expiry',
    key: { expiresAt: 1 },
    partialFilterExpression: { expiresAt: { $exists: true } },
    expireAfterSeconds: 0,
  },
  {
    collection: SUBMISSIONS,
    name: 'requests_body_expiry',
    key: { bodyUntil: 1 },
    partialFilterExpression: { bodyUntil: { $exists: true } },
  },
  // Ingest writes no applicant, so accepting costs nothing here.
  ...(['email', 'ein'] as const).map((key) => ({
    collection: SUBMISSIONS,
    name: `requests_applicant_${key}`,
    key: { [`applicant.${key}`]: 1 as const },
    partialFilterExpression: { [`applicant.${key}`]: { $exists: true } },
  })),
  // This index serves the line of mails.
  {
    collection: SUBMISSIONS,
    name: 'requests_line',
    key: { partnerId: 1, dueAt: 1 },
    partialFilterExpression: { state: 'account_created' },
  },
  // The few dead letters may be far from the end of `_id`.
  {
    collection: SUBMISSIONS,
    name: 'requests_dead_lettered',
    key: { state: 1, _id: 1 },
    partialFilterExpression: { state: 'dead_lettered' },
  },
  {
    collection: SUBMISSIONS,
    name: 'requests_idempotency',
    key: { idempotencyDigest: 1 },
    unique: true,
    partialFilterExpression: { idempotencyDigest: { $exists: true } },
  },
  {
    collection: SUBMISSIONS,
    name: 'requests_bounced',
    key: { bouncedAt: 1 },
    partialFilterExpression: { bouncedAt: { $exists: true } },
  },
  {
    collection: RATE_LIMITED,
    name: 'rate_limited_expiry',
    key: { expiresAt: 1 },
    expireAfterSeconds: 0,
  },
];
