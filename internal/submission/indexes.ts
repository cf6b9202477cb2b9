/** Indexes of `requests` and `rate_limited`. */
import type { IndexDefinition } from '../platform/mongo-indexes.ts';
import { RATE_LIMITED } from './over-limit.ts';
import { SUBMISSIONS } from './submission.ts';

export const submissionIndexes: readonly IndexDefinition[] = [
  // Only open records have a dueAt, so the index stays as small as the backlog.
  {
    collection: SUBMISSIONS,
    name: 'requests_due',
    // The partner comes last, so that a search can leave partners on hold out by the index alone.
    key: { state: 1, dueAt: 1, partnerId: 1 },
    partialFilterExpression: { dueAt: { $exists: true } },
  },
  // Partial rather than sparse: the same documents, and a fifth less to do for an insert in
  // DocumentDB.
  {
    collection: SUBMISSIONS,
    name: 'requests_expiry',
    key: { expiresAt: 1 },
    partialFilterExpression: { expiresAt: { $exists: true } },
    expireAfterSeconds: 0,
  },
  // A processor removes bodies by this date. Ingest writes none with what it accepts.
  {
    collection: SUBMISSIONS,
    name: 'requests_body_expiry',
    key: { bodyUntil: 1 },
    partialFilterExpression: { bodyUntil: { $exists: true } },
  },
  // For support and erasure. Ingest writes no applicant, so accepting a request costs nothing more.
  ...(['email', 'ein'] as const).map((key) => ({
    collection: SUBMISSIONS,
    name: `requests_applicant_${key}`,
    key: { [`applicant.${key}`]: 1 as const },
    partialFilterExpression: { [`applicant.${key}`]: { $exists: true } },
  })),
  // The line of mails, partner by partner. Ingest writes none of these.
  {
    collection: SUBMISSIONS,
    name: 'requests_line',
    key: { partnerId: 1, dueAt: 1 },
    partialFilterExpression: { state: 'account_created' },
  },
  // Dead letters are kept for ever, so they may be old and few; anything else is found near the end
  // of `_id`.
  {
    collection: SUBMISSIONS,
    name: 'requests_dead_lettered',
    key: { state: 1, _id: 1 },
    partialFilterExpression: { state: 'dead_lettered' },
  },
  // Requests without the header have no digest, and no entry here.
  {
    collection: SUBMISSIONS,
    name: 'requests_idempotency',
    key: { idempotencyDigest: 1 },
    unique: true,
    partialFilterExpression: { idempotencyDigest: { $exists: true } },
  },
  // Few, and never on what ingest inserts.
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
