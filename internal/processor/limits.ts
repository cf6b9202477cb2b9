/** Bounds of the background work, with the reason for each size. */
import { mailerLimits } from '../mail/mailer.ts';

/** A whole hand-over, and ten seconds to record it. */
export const FINISH_WORK_MS = mailerLimits.beforeContentMs + mailerLimits.afterContentMs + 10_000;
/** The chart's grace period is five seconds longer. */
export const PROCESSOR_DRAIN_MS = FINISH_WORK_MS + 20_000;

/** With 15 s to the first sight and 15 s of grace, a lost job is repaired within 35 s. */
export const RECONCILE_EVERY_MS = 2_500;
