/**
 * Sends a test submission each minute, as a partner would; with `mails`, also one each ten minutes
 * whose e-mail goes through the relay.
 */
import { mailProbeInterval, mailProbeOf, outcomeProbeAt } from '../application/sandbox-endings.ts';
import type { Clock } from '../platform/process/clock.ts';
import { ContactError } from '../platform/process/contact-failure.ts';
import type { Fault } from '../platform/process/fault.ts';
import type { SubmissionRecord } from '../submission/submission.ts';
import type { ControllerMetrics } from '../telemetry/metrics.ts';
import type { LeaderLoop } from './leadership.ts';
import { mailTaken, submitTest, testCompleted, type TestTarget } from './sandbox-submission.ts';

const EVERY_MS = 60_000;
const OUTCOME_WITHIN_MS = 30_000;
/** A relay may take longer than we do. */
const MAIL_WITHIN_MS = 60_000;
const MS_PER_SECOND = 1_000;
const UNKNOWN_KEY = 'ingest does not know PROBE_KEY as the key of the probe yet';

interface StandingProbeTools {
  readonly target: TestTarget;
  readonly clock: Clock;
  readonly metrics: ControllerMetrics;
  readonly mails?: { read(requestId: string): Promise<ProbeRecord | undefined> };
}

/** What the probe reads of its own records. `lastError` has the relay's answer. */
type ProbeRecord = Pick<SubmissionRecord, 'probe' | 'lastError' | 'reasons'>;

type ProbeStep = 'accept' | 'outcome';

/** Has the code of ingest's failure, where it could not be reached. */
function faultOf(error: unknown): Fault {
  const { message: words, cause } = error as Error;
  return { ...(cause instanceof ContactError ? cause.fault : { code: 'probe_failed' }), words };
}

/** A round rejects with the step that failed and what was answered. */
export function standingProbe({ target, clock, metrics, mails }: StandingProbeTools): LeaderLoop {
  /** The interval of the last mail probe, and its fault. */
  let mailed: { readonly interval: number; readonly error?: Error } | undefined;

  async function mailOnce(term: AbortSignal): Promise<void> {
    const interval = mailProbeInterval(clock.now());
    if (mailed?.interval !== interval) mailed = await mailOf(interval, mails!, term);
    if (mailed.error !== undefined) throw mailed.error;
  }

  async function mailOf(
    interval: number,
    records: NonNullable<typeof mails>,
    term: AbortSignal,
  ): Promise<NonNullable<typeof mailed>> {
    let id = await submitTest(target, mailProbeOf(interval), term);
    // It says nothing of the relay; the next round sends another.
    if ((await records.read(id))?.probe !== 'mail')
      throw new Error(`the step mail fails: ${UNKNOWN_KEY}`);
    try {
      if (!(await mailTaken(target, id, MAIL_WITHIN_MS, term))) {
        // Another leader sent the e-mail of this interval.
        const { reasons = [] } = (await records.read(id)) ?? {};
        id = reasons.find(({ duplicateOf }) => duplicateOf !== undefined)?.duplicateOf ?? id;
        await testCompleted(target, id, MAIL_WITHIN_MS, term);
      }
      metrics.probeMailSuccess.set(1);
      return { interval };
    } catch (error) {
      term.throwIfAborted();
      metrics.probeMailSuccess.set(0);
      const said = (await records.read(id).catch(() => undefined))?.lastError;
      const words = [(error as Error).message, said].filter((one) => one !== undefined).join(': ');
      return { interval, error: new Error(`the step mail fails: ${words}`, { cause: error }) };
    }
  }

  return {
    name: 'probe',
    everyMs: EVERY_MS,
    // At an install the controller may be there before ingest.
    retry: { firstMs: 5_000, capMs: EVERY_MS },
    // Before the alert fires, so that `/readyz` and the log have the reason by then.
    failsAfterMs: 3 * EVERY_MS,
    faultOf,
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
      try {
        const id = await timed('accept', () =>
          submitTest(target, outcomeProbeAt(clock.now()), term),
        );
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
