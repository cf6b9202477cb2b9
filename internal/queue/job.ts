/**
 * The queue of new applications and what a job holds: where to find the records, and nothing
 * personal.
 */
import { z } from 'zod';
import { defined } from '../platform/defined.ts';
import type { SpanOptions } from '../platform/tracing.ts';

export const QUEUE = 'applications';

/** The states of a job that are counted. */
export const jobStates = ['waiting', 'active', 'prioritized'] as const;
export type JobState = (typeof jobStates)[number];

/** The braces keep all keys of the queue in one slot of a Redis Cluster. */
export const QUEUE_PREFIX = '{partner-ingest}';

/** A hint that record `requestId`, as of `version`, has work waiting. */
export const hintSchema = z.object({
  requestId: z.string(),
  version: z.number().int().nonnegative(),
  traceparent: z.string().optional(),
  /** Whose work it is: hints of a partner that sends much wait behind those of others. */
  partnerId: z.string().optional(),
});
export type Hint = z.output<typeof hintSchema>;

/** The hint for a record as of its version. */
export function hintFor(record: {
  readonly _id: string;
  readonly version: number;
  readonly traceparent?: string;
  readonly partnerId?: string;
}): Hint {
  const { _id: requestId, version, traceparent, partnerId } = record;
  return {
    requestId,
    version,
    ...defined({ traceparent, partnerId }),
  };
}

/**
 * Hints in one job. A job costs Redis and both its ends as much as a record costs the database, so
 * under load the hints of one moment share one; fifty of them leave little of that cost, and little
 * to take over from a killed worker.
 */
export const HINTS_PER_JOB = 50;
/**
 * What is sent together is spread over this many jobs before they grow, so that several processors
 * get their part of it. Under load there are a hundred sendings a second.
 */
export const SPREAD = 4;

/** What a job holds. It has no id of ours: claims keep work single, however often a hint comes. */
const jobSchema = z.object({ hints: z.array(hintSchema).min(1).max(HINTS_PER_JOB) });
export type JobData = z.output<typeof jobSchema>;

/** The hints of a job; undefined when its data are of another shape. */
export function hintsOf(data: unknown): readonly Hint[] | undefined {
  return jobSchema.safeParse(data).data?.hints;
}

/** Packs hints into `SPREAD` jobs, or as many more as their bound asks for. */
export function jobsFor(hints: readonly Hint[]): JobData[] {
  const size = Math.min(HINTS_PER_JOB, Math.ceil(hints.length / SPREAD));
  const jobs = [];
  for (let start = 0; start < hints.length; start += size)
    jobs.push({ hints: hints.slice(start, start + size) });
  return jobs;
}

/** BullMQ never retries: the record's `dueAt` says when its next attempt is. */
export const jobOptions = { attempts: 1, removeOnComplete: true, removeOnFail: true } as const;
/**
 * Of hints of a partner that sends much: BullMQ takes jobs with a priority after all that have
 * none.
 */
export const BEHIND = { priority: 1 } as const;

/** A span of sending or working on a job, named by OpenTelemetry's conventions. */
export function queueSpan(
  operation: 'send' | 'process',
  attributes: SpanOptions['attributes'],
): SpanOptions {
  return {
    name: `${operation} ${QUEUE}`,
    kind: operation === 'send' ? 'PRODUCER' : 'CONSUMER',
    attributes: {
      'messaging.system': 'bullmq',
      'messaging.operation.type': operation,
      'messaging.operation.name': operation,
      'messaging.destination.name': QUEUE,
      ...attributes,
    },
  };
}
