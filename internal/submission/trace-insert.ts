/** Adds the shared insert of a batch to the trace of each request. */
import type { Collection } from 'mongodb';
import { databaseSpan } from '../platform/mongo.ts';
import { errorTypeOf, startSpans, tracing } from '../platform/tracing.ts';
import type { SubmissionRecord } from './submission.ts';

export async function traceInsert<T>(
  collection: Collection<SubmissionRecord>,
  batch: readonly { readonly record: SubmissionRecord }[],
  insert: () => Promise<T>,
): Promise<T> {
  if (!tracing()) return insert();
  const spans = startSpans(
    databaseSpan('insert', collection, { 'db.operation.batch.size': batch.length }),
    batch.map(({ record }) => record.traceparent),
  );
  try {
    return await insert();
  } catch (error) {
    spans?.fail(errorTypeOf(error));
    throw error;
  } finally {
    spans?.end();
  }
}
