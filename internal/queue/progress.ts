/** Whether a consumer is alive: jobs that wait are taken. */
import type { Clock } from '../platform/clock.ts';
import type { Consumer } from './consume.ts';

/**
 * A liveness probe: says why when jobs have been seen waiting for `deadlineMs` and none was taken. That one waits just now
 * means nothing after a quiet night or an outage of Redis: the worker is about to take it.
 */
export function progressProbe(options: {
  readonly consumer: Pick<Consumer, 'queue' | 'paused' | 'idleMs'>;
  /** Jobs waiting; rejects while Redis is away. */
  readonly waiting: () => Promise<number>;
  readonly deadlineMs: number;
  readonly clock: Clock;
}): () => Promise<string[]> {
  const { consumer, deadlineMs, clock } = options;
  let seenWaitingAtMs: number | undefined;
  return async () => {
    const mayBeStuck = !consumer.paused && consumer.idleMs() >= deadlineMs;
    const waiting = mayBeStuck ? await options.waiting().catch(() => 0) : 0;
    if (waiting === 0) {
      seenWaitingAtMs = undefined;
      return [];
    }
    seenWaitingAtMs ??= clock.monotonicMs();
    const waited = Math.min(consumer.idleMs(), clock.monotonicMs() - seenWaitingAtMs);
    if (waited < deadlineMs) return [];
    return [`worker ${consumer.queue} has taken no job for ${Math.round(waited / 1_000)} s although some wait`];
  };
}
