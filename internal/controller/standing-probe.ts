/** One test submission a minute, as a partner would send it. Only the leader sends. */
import type { Clock } from '../platform/clock.ts';
import type { Loops } from '../platform/loop.ts';
import type { ControllerMetrics } from '../telemetry/metrics.ts';
import { submitTest, testCompleted, type TestTarget } from './test-submission.ts';

const EVERY_MS = 60_000;
const LOOK_EVERY_MS = 5_000;
/** At an install the controller may be there before ingest. */
const RETRY = { firstMs: 5_000, capMs: EVERY_MS } as const;
/** Before the alert fires, so that `/readyz` and the log have the reason by then. */
const FAILS_AFTER_MS = 3 * EVERY_MS;
const OUTCOME_WITHIN_MS = 30_000;
const MS_PER_SECOND = 1_000;

interface StandingProbeTools {
  readonly target: TestTarget;
  readonly clock: Clock;
  readonly leads: () => boolean;
  readonly metrics: Pick<ControllerMetrics, 'probeSuccess' | 'probeSeconds'>;
}

export class StandingProbe {
  readonly #tools: StandingProbeTools;

  constructor(tools: StandingProbeTools) {
    this.#tools = tools;
  }

  start(loops: Pick<Loops<'probe'>, 'start'>): void {
    loops.start({
      name: 'probe',
      everyMs: () => (this.#tools.leads() ? EVERY_MS : LOOK_EVERY_MS),
      retry: RETRY,
      failsAfterMs: FAILS_AFTER_MS,
      run: (signal) => this.round(signal),
      reason: (error) => (error as Error).message,
    });
  }

  /** Rejects with the step that failed and what was answered. */
  async round(signal?: AbortSignal): Promise<void> {
    const { target, clock, leads, metrics } = this.#tools;
    if (!leads()) return forgetProbe(metrics);
    const seconds: Partial<Record<'accept' | 'outcome', number>> = {};
    const timed = async <T>(step: keyof typeof seconds, run: () => Promise<T>): Promise<T> => {
      const beganMs = clock.monotonicMs();
      const result = await run().catch((error: unknown) => {
        throw new Error(`the step ${step} fails: ${(error as Error).message}`, { cause: error });
      });
      seconds[step] = (clock.monotonicMs() - beganMs) / MS_PER_SECOND;
      return result;
    };
    try {
      const email = `probe+${clock.now().getTime()}@example.com`;
      const id = await timed('accept', () => submitTest(target, email, signal));
      await timed('outcome', () =>
        testCompleted(target, id, { withinMs: OUTCOME_WITHIN_MS, signal }),
      );
    } finally {
      forgetProbe(metrics);
      // Another process may lead by now.
      if (leads()) {
        const { accept, outcome } = seconds;
        metrics.probeSuccess.set(outcome === undefined ? 0 : 1);
        if (accept !== undefined) metrics.probeSeconds.set({ step: 'accept' }, accept);
        if (outcome !== undefined) metrics.probeSeconds.set({ step: 'outcome' }, outcome);
      }
    }
  }
}

/** Without a probe there is no value: 0 would be a failure. */
export function forgetProbe(metrics: StandingProbeTools['metrics']): void {
  metrics.probeSuccess.remove();
  metrics.probeSeconds.reset();
}
