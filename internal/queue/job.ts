/** The two queues and what a job holds: where to find the records, and nothing personal. */
import { z } from 'zod';
import type { SpanOptions } from '../platform/tracing.ts';

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
 * Hints in one job. A job costs Redis and both its ends as much as a record costs the database, so under load the hints
 * of one moment share one; fifty of them leave little of that cost, and little to take over from a killed worker.
 */
export const HINTS_PER_JOB = 50;
/** A burst is spread over this many jobs before any is shared, so that all processors get their part of it. */
export const SPREAD = 16;

const jobSchema = z.union([hintSchema, z.object({ hints: z.array(hintSchema).min(1).max(HINTS_PER_JOB) })]);

/** The hints of a job; undefined when its data are of another shape. */
export function hintsOf(data: unknown): readonly Hint[] | undefined {
  const job = jobSchema.safeParse(data);
  if (!job.success) return undefined;
  return 'hints' in job.data ? job.data.hints : [job.data];
}

/**
 * Packs hints into `SPREAD` jobs, or as many more as their bound asks for, each with its data and, where it has one, its id. Those that are sent
 * `again` have none: where Redis lost a job but not its id (eviction), that id would block the record for ever.
 */
export function jobsFor(hints: readonly Hint[], again = false): { readonly data: object; readonly jobId?: string }[] {
  const jobs = [];
  const size = Math.min(HINTS_PER_JOB, Math.ceil(hints.length / SPREAD));
  for (let start = 0; start < hints.length; start += size) {
    const share = hints.slice(start, start + size);
    const [first] = share;
    const alone = share.length === 1 && first !== undefined;
    jobs.push(alone ? { data: first, ...(again ? {} : { jobId: jobId(first) }) } : { data: { hints: share } });
  }
  return jobs;
}

/**
 * A lone hint's job has one id for each version of its record: adding it twice does nothing while the first exists in
 * any set, and a finished one never blocks the next version. Shared jobs need none: claims keep work single.
 */
export function jobId(hint: Hint): string {
  return `${hint.requestId}-${hint.version}`;
}

/** BullMQ never retries: a retry is a new job for the next version, with the record's `dueAt` as its truth. */
export const jobOptions = { attempts: 1, removeOnComplete: true, removeOnFail: true } as const;

/** A span of sending or working on a job, named by OpenTelemetry's conventions. */
export function queueSpan(
  operation: 'send' | 'process',
  queue: QueueName,
  attributes: SpanOptions['attributes'],
): SpanOptions {
  return {
    name: `${operation} ${queue}`,
    kind: operation === 'send' ? 'PRODUCER' : 'CONSUMER',
    attributes: {
      'messaging.system': 'bullmq',
      'messaging.operation.type': operation,
      'messaging.operation.name': operation,
      'messaging.destination.name': queue,
      ...attributes,
    },
  };
}
