/** One test submission a minute, as a partner would send it. */
import type { Clock } from '../platform/process/clock.ts';
import type { ControllerMetrics } from '../telemetry/metrics.ts';
import type { LeaderLoop } from './leadership.ts';
import { submitTest, testCompleted, type TestTarget } from './sandbox-submission.ts';

const EVERY_MS = 60_000;
const OUTCOME_WITHIN_MS = 30_000;
const MS_PER_SECOND = 1_000;

interface StandingProbeTools {
  readonly target: TestTarget;
  readonly clock: Clock;
  readonly metrics: ControllerMetrics;
}

type ProbeStep = 'accept' | 'outcome';

/** A round rejects with the step that failed and what was answered. */
export function standingProbe({ target, clock, metrics }: StandingProbeTools): LeaderLoop {
  return {
    name: 'probe',
    everyMs: EVERY_MS,
    // At an install the controller may be there before ingest.
    retry: { firstMs: 5_000, capMs: EVERY_MS },
    // Before the alert fires, so that `/readyz` and the log have the reason by then.
    failsAfterMs: 3 * EVERY_MS,
    reason: (error) => (error as Error).message,
    async run(term) {
      const took = new Map<ProbeStep, number>();
      const timed = async <T>(step: ProbeStep, run: () => Promise<T>): Promise<T> => {
        const beganMs = clock.monotonicMs();
        const result = await run().catch((error: unknown) => {
          throw new Error(`the step ${step} fails: ${(error as Error).message}`, { cause: error });
        });
        took.set(step, (clock.monotonicMs() - beganMs) / MS_PER_SECOND);
        return result;
      };
      const email = `probe+${clock.now().getTime()}@example.com`;
      try {
        const id = await timed('accept', () => submitTest(target, email, term));
        await timed('outcome', () => testCompleted(target, id, OUTCOME_WITHIN_MS, term));
      } finally {
        metrics.probeSuccess.set(took.has('outcome') ? 1 : 0);
        metrics.probeSeconds.reset();
        for (const [step, seconds] of took) metrics.probeSeconds.set({ step }, seconds);
      }
    },
    forget() {
      metrics.probeSuccess.remove();
      metrics.probeSeconds.reset();
    },
  };
}
