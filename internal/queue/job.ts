/** The two queues and what a job holds: where to find the record, and nothing personal. */
import { z } from 'zod';

export const queueNames = ['applications', 'notifications'] as const;
export type QueueName = (typeof queueNames)[number];

/** The braces keep all keys of a queue in one slot of a Redis Cluster. */
export const QUEUE_PREFIX = '{partner-ingest}';

/** A hint that record `requestId`, as of `version`, has work waiting. */
export const hintSchema = z.object({
  requestId: z.string(),
  version: z.number().int().nonnegative(),
  traceparent: z.string().optional(),
});
export type Hint = z.output<typeof hintSchema>;

/** The hint for a record as of its version. */
export function hintFor(record: {
  readonly _id: string;
  readonly version: number;
  readonly traceparent?: string;
}): Hint {
  const { _id: requestId, version, traceparent } = record;
  return traceparent === undefined ? { requestId, version } : { requestId, version, traceparent };
}

/**
 * One id for each version of a record: adding a hint twice does nothing while the first exists in any set, and a lost
 * or finished one never blocks the next version.
 */
export function jobId(hint: Hint): string {
  return `${hint.requestId}-${hint.version}`;
}

/** BullMQ never retries: a retry is a new job for the next version, with the record's `dueAt` as its truth. */
export const jobOptions = { attempts: 1, removeOnComplete: true, removeOnFail: true } as const;
