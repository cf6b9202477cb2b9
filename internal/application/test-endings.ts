/** What the EIN of a submission with a test key decides, so that partners can try every ending. */
import { discardedReason, duplicateReason, type Reason } from './reasons.ts';

export interface TestEnding {
  /** Anything but a 202 is not recorded. */
  readonly answer: 202 | 429 | 500;
  /** Why it is rejected. */
  readonly reason?: Reason;
  /** The relay refuses its applicant's address. */
  readonly undeliverable?: true;
  /** How long nobody works on it. */
  readonly waitsMs?: number;
}

const rejected = (reason: Reason): TestEnding => ({ answer: 202, reason });

/** The outcome of each stands in docs/contract.md and in `ingest/openapi.yaml`. */
export const testEndings: ReadonlyMap<string, TestEnding> = new Map([
  ['000000000', { answer: 202 }],
  ['000000001', rejected(duplicateReason('ein', undefined, true))],
  ['000000002', rejected(duplicateReason('email', undefined, true))],
  ['000000003', { answer: 202, undeliverable: true }],
  ['000000004', rejected(discardedReason)],
  ['000000005', { answer: 202, waitsMs: 60_000 }],
  ['000000006', rejected(duplicateReason('ein', 'another partner', false))],
  ['000000429', { answer: 429 }],
  ['000000500', { answer: 500 }],
]);

export const endingOf = (ein: string | undefined): TestEnding | undefined =>
  testEndings.get(ein ?? '');
