/** The queue of work and its jobs, which hold nothing personal. */
import { SpanKind, type Attributes } from '@opentelemetry/api';
import type { JobsOptions } from 'bullmq';
import { z } from 'zod';
import { defined } from '../platform/process/defined.ts';
import type { NamedSpan } from '../platform/process/tracing.ts';

export const QUEUE = 'applications';
/** Where the ids of what has ended are published. */
export const ENDS = 'ends';

export const jobStates = ['waiting', 'active', 'delayed'] as const;
export type JobState = (typeof jobStates)[number];

/** What became of a hint that was to be sent. */
export const hintResults = ['sent', 'failed', 'dropped'] as const;
export type HintResult = (typeof hintResults)[number];

export const steps = ['account', 'mail'] as const;
export type Step = (typeof steps)[number];

/** A record is due, if it still has this `version`. */
export const hintSchema = z.object({
  requestId: z.string(),
  version: z.number().int().nonnegative(),
  traceparent: z.string().optional(),
  partnerId: z.string().optional(),
  test: z.literal(true).optional(),
});
export type Hint = z.output<typeof hintSchema>;

/** Brings a record back after `delayMs`. */
export interface Retry extends Hint {
  readonly step: Step;
  readonly delayMs: number;
  /** The class of the failure. */
  readonly reason: string;
  /** The number of the attempt that waits. */
  readonly attempt: number;
}

export function hintFor(record: {
  readonly _id: string;
  readonly version: number;
  readonly traceparent?: string;
  readonly partnerId?: string;
  readonly test?: true;
}): Hint {
  const { _id: requestId, version, traceparent, partnerId, test } = record;
  return { requestId, version, ...defined({ traceparent, partnerId, test }) };
}

/** Fifty make a job cheap, and a killed worker loses few. */
const RECORDS_PER_JOB = 50;

const jobSchema = z.object({ records: z.array(hintSchema).min(1).max(RECORDS_PER_JOB) });

export function hintsOf(data: unknown): readonly Hint[] | undefined {
  return jobSchema.safeParse(data).data?.records;
}

export interface Job {
  readonly name: Step;
  readonly data: {
    readonly records: readonly Hint[];
    readonly reason?: string;
    readonly attempt?: number;
  };
  readonly opts: JobsOptions;
}

/** BullMQ never repeats a job: each retry is a new job, made when its attempt failed. */
const jobOptions = { attempts: 1, removeOnComplete: true, removeOnFail: true } as const;

/** New applications share jobs; each retry has its own. */
export function jobsFor(hints: readonly (Hint | Retry)[]): Job[] {
  const { now = [], late = [] } = Object.groupBy(hints, (hint) =>
    'delayMs' in hint ? 'late' : 'now',
  );
  const jobs: Job[] = (late as Retry[]).map(({ step, delayMs, reason, attempt, ...hint }) => ({
    name: step,
    data: { records: [hint], reason, attempt },
    opts: { ...jobOptions, delay: delayMs, jobId: `${hint.requestId}-${hint.version}` },
  }));
  for (let start = 0; start < now.length; start += RECORDS_PER_JOB) {
    const records = now.slice(start, start + RECORDS_PER_JOB);
    jobs.push({ name: 'account', data: { records }, opts: jobOptions });
  }
  return jobs;
}

export function queueSpan(operation: 'send' | 'process', attributes: Attributes): NamedSpan {
  return {
    name: `${operation} ${QUEUE}`,
    kind: operation === 'send' ? SpanKind.PRODUCER : SpanKind.CONSUMER,
    attributes: {
      'messaging.system': 'bullmq',
      'messaging.operation.type': operation,
      'messaging.operation.name': operation,
      'messaging.destination.name': QUEUE,
      ...attributes,
    },
  };
}
