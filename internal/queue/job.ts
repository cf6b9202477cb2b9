/** The queue of new applications and its jobs, which hold nothing personal. */
import { z } from 'zod';
import { defined } from '../platform/defined.ts';
import type { SpanOptions } from '../platform/tracing.ts';

export const QUEUE = 'applications';

export const jobStates = ['waiting', 'active', 'prioritized'] as const;
export type JobState = (typeof jobStates)[number];

/** The braces keep all keys in one slot of a Redis Cluster. */
export const QUEUE_PREFIX = '{partner-ingest}';

/** Work waits in the record as of `version`. */
export const hintSchema = z.object({
  requestId: z.string(),
  version: z.number().int().nonnegative(),
  traceparent: z.string().optional(),
  partnerId: z.string().optional(),
});
export type Hint = z.output<typeof hintSchema>;

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
 * A job costs as much as its record. Fifty hints make that small, and a killed worker leaves few.
 */
export const HINTS_PER_JOB = 50;
/** Even few hints make this many jobs, so that several processors share them. */
export const SPREAD = 4;

const jobSchema = z.object({ hints: z.array(hintSchema).min(1).max(HINTS_PER_JOB) });
export type JobData = z.output<typeof jobSchema>;

export function hintsOf(data: unknown): readonly Hint[] | undefined {
  return jobSchema.safeParse(data).data?.hints;
}

export function jobsFor(hints: readonly Hint[]): JobData[] {
  const size = Math.min(HINTS_PER_JOB, Math.ceil(hints.length / SPREAD));
  const jobs = [];
  for (let start = 0; start < hints.length; start += size)
    jobs.push({ hints: hints.slice(start, start + size) });
  return jobs;
}

/** BullMQ never retries: the record's `dueAt` sets the next attempt. */
export const jobOptions = { attempts: 1, removeOnComplete: true, removeOnFail: true } as const;
/** BullMQ takes such jobs after all others. */
export const BEHIND = { priority: 1 } as const;

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
