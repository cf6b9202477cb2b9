/** The mode of a key, and so of what it submits: live, or a test. */
import { DAY_MS } from '../platform/process/clock.ts';

export interface Mode {
  readonly test?: true | undefined;
}

/** A partner's tests share nothing with its live submissions. No partner's id has a space. */
export const ownerName = (partnerId: string, { test }: Mode): string =>
  test ? `${partnerId} test` : partnerId;

export const isTestOwner = (owner: string): boolean => owner.endsWith(' test');

/** The records and accounts of tests, whatever became of them. */
export const TESTS_KEPT_SECONDS = (7 * DAY_MS) / 1_000;
