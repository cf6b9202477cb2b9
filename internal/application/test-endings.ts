/** What the EIN of a submission with a test key decides, so that partners can try every ending. */
import { discardedReason, duplicateReason, type Reason } from './reasons.ts';

export interface TestEnding {
  /** Anything but a 202 is not recorded. */
  readonly answer: 202 | 429 | 500;
  /** As docs/contract.md says it. */
  readonly outcome: string;
  /** Why it is rejected. */
  readonly reason?: Reason;
  /** The relay refuses its applicant's address. */
  readonly undeliverable?: true;
  /** How long nobody works on it. */
  readonly waitsMs?: number;
}

const rejected = (reason: Reason, code: string = reason.code): TestEnding => ({
  answer: 202,
  outcome: `\`rejected\` for \`${code}\``,
  reason,
});

export const testEndings: ReadonlyMap<string, TestEnding> = new Map([
  ['000000000', { answer: 202, outcome: '`completed`' }],
  ['000000001', rejected(duplicateReason('ein', undefined, true))],
  ['000000002', rejected(duplicateReason('email', undefined, true))],
  ['000000003', { answer: 202, outcome: '`undeliverable`', undeliverable: true }],
  ['000000004', rejected(discardedReason)],
  [
    '000000005',
    { answer: 202, outcome: '`processing` for a minute, then `completed`', waitsMs: 60_000 },
  ],
  ['000000006', rejected(duplicateReason('ein', 'another partner', false), 'duplicate')],
  ['000000429', { answer: 429, outcome: 'nothing is recorded' }],
  ['000000500', { answer: 500, outcome: 'nothing is recorded' }],
]);

export const endingOf = (ein: string | undefined): TestEnding | undefined =>
  testEndings.get(ein ?? '');
