/** Adds the shared insert of a batch to the trace of each request. */
import type { Collection } from 'mongodb';
import { databaseSpan } from '../platform/mongo.ts';
import { inSpans, tracing } from '../platform/tracing.ts';
import type { SubmissionRecord } from './submission.ts';

export function traceInsert<T>(
  collection: Collection<SubmissionRecord>,
  batch: readonly { readonly record: SubmissionRecord }[],
  insert: () => Promise<T>,
): Promise<T> {
  if (!tracing()) return insert();
  return inSpans(
    databaseSpan('insert', collection, { 'db.operation.batch.size': batch.length }),
    batch.map(({ record }) => record.traceparent),
    insert,
  );
}
