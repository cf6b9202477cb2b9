/**
 * Sends a test submission each minute, as a partner would; with `mails`, also one each ten minutes
 * whose e-mail goes through the relay.
 */
import { mailProbeInterval, mailProbeOf } from '../application/sandbox-endings.ts';
import type { Clock } from '../platform/process/clock.ts';
import type { ControllerMetrics } from '../telemetry/metrics.ts';
import type { LeaderLoop } from './leadership.ts';
import { mailTaken, submitTest, testCompleted, type TestTarget } from './sandbox-submission.ts';

const EVERY_MS = 60_000;
const OUTCOME_WITHIN_MS = 30_000;
/** A relay may take longer than we do. */
const MAIL_WITHIN_MS = 60_000;
const MS_PER_SECOND = 1_000;

interface StandingProbeTools {
  readonly target: TestTarget;
  readonly clock: Clock;
  readonly metrics: ControllerMetrics;
  /** Returns a failed hand-over's error, with the relay's answer. */
  readonly mails?: { lastErrorOf(requestId: string): Promise<string | undefined> };
}

type ProbeStep = 'accept' | 'outcome';

/** A round rejects with the step that failed and what was answered. */
export function standingProbe({ target, clock, metrics, mails }: StandingProbeTools): LeaderLoop {
  /** The interval of the last mail probe, and its fault. */
  let mailed: { readonly interval: number; readonly fault?: string } | undefined;

  async function mailOnce(term: AbortSignal): Promise<void> {
    const interval = mailProbeInterval(clock.now());
    if (mailed?.interval !== interval) mailed = await mailOf(interval, term);
    if (mailed.fault !== undefined) throw new Error(`the step mail fails: ${mailed.fault}`);
  }

  async function mailOf(interval: number, term: AbortSignal): Promise<NonNullable<typeof mailed>> {
    const id = await submitTest(target, mailProbeOf('controller', interval), term);
    try {
      // False if another leader sent this interval's probe, and knows its result.
      if (await mailTaken(target, id, MAIL_WITHIN_MS, term)) metrics.probeMailSuccess.set(1);
      return { interval };
    } catch (error) {
      term.throwIfAborted();
      metrics.probeMailSuccess.set(0);
      const said = await mails?.lastErrorOf(id).catch(() => undefined);
      const fault = [(error as Error).message, said].filter((words) => words !== undefined);
      return { interval, fault: fault.join(': ') };
    }
  }

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
        const id = await timed('accept', () => submitTest(target, { email }, term));
        await timed('outcome', () => testCompleted(target, id, OUTCOME_WITHIN_MS, term));
      } finally {
        metrics.probeSuccess.set(took.has('outcome') ? 1 : 0);
        metrics.probeSeconds.reset();
        for (const [step, seconds] of took) metrics.probeSeconds.set({ step }, seconds);
      }
      if (mails !== undefined) await mailOnce(term);
    },
    forget() {
      mailed = undefined;
      metrics.probeSuccess.remove();
      metrics.probeMailSuccess.remove();
      metrics.probeSeconds.reset();
    },
  };
}
