/** Indexes of `requests` and `rate_limited`. */
import { TESTS_KEPT_SECONDS } from '../partner/mode.ts';
import type { IndexDefinition } from '../platform/stores/mongo-indexes.ts';
import { RATE_LIMITED } from './over-limit.ts';
import { SUBMISSIONS } from './submission.ts';

export const submissionIndexes: readonly IndexDefinition[] = [
  // Only open records have `dueAt`, so this index is as small as the backlog.
  {
    collection: SUBMISSIONS,
    name: 'requests_due',
    // A query skips partners on hold without reading their records.
    key: { state: 1, dueAt: 1, partnerId: 1 },
    partialFilterExpression: { dueAt: { $exists: true } },
  },
  // In DocumentDB, a partial index makes inserts a fifth cheaper than a sparse one.
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
  // Ingest writes no applicant.
  ...(['email', 'ein'] as const).map((key) => ({
    collection: SUBMISSIONS,
    name: `requests_applicant_${key}`,
    key: { [`applicant.${key}`]: 1 as const },
    partialFilterExpression: { [`applicant.${key}`]: { $exists: true } },
  })),
  // A partner's own list, newest first.
  {
    collection: SUBMISSIONS,
    name: 'requests_partner',
    key: { partnerId: 1, _id: -1 },
    partialFilterExpression: { partnerId: { $exists: true } },
  },
  // A scan by `_id` would find the few dead letters slowly.
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
  // Tests alone are in these three. A test expires whatever became of it.
  {
    collection: SUBMISSIONS,
    name: 'requests_tests_due',
    key: { dueAt: 1 },
    partialFilterExpression: { test: true, dueAt: { $exists: true } },
  },
  {
    collection: SUBMISSIONS,
    name: 'requests_tests_partner',
    key: { partnerId: 1, _id: -1 },
    partialFilterExpression: { test: true },
  },
  {
    collection: SUBMISSIONS,
    name: 'requests_tests_expiry',
    key: { receivedAt: 1 },
    partialFilterExpression: { test: true },
    expireAfterSeconds: TESTS_KEPT_SECONDS,
  },
  {
    collection: SUBMISSIONS,
    name: 'requests_bounced',
    key: { bouncedAt: 1 },
    partialFilterExpression: { bouncedAt: { $exists: true } },
  },
  // Of all that was turned away in some minutes, and of one partner's.
  { collection: RATE_LIMITED, name: 'rate_limited_window', key: { windowStart: -1 } },
  {
    collection: RATE_LIMITED,
    name: 'rate_limited_partner',
    key: { partnerId: 1, windowStart: -1 },
    partialFilterExpression: { partnerId: { $exists: true } },
  },
  {
    collection: RATE_LIMITED,
    name: 'rate_limited_expiry',
    key: { expiresAt: 1 },
    expireAfterSeconds: 0,
  },
];
