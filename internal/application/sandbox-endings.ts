/** What the EIN of a submission with a test key decides, so that partners can try every ending. */
import { discardedReason, duplicateReason, type Reason } from './reasons.ts';

export interface TestEnding {
  /** `none`: it is accepted, but the connection is cut in place of the answer. */
  readonly answer: 202 | 400 | 403 | 408 | 422 | 429 | 500 | 'none';
  /** It is answered and recorded as a request with this fault. */
  readonly fault?: 'tooLarge' | 'bodyTooSlow' | 'idempotencyMismatch' | 'idempotencyErased';
  /** Why it is rejected. */
  readonly reason?: Reason;
  /** The relay refuses its applicant's address. */
  readonly undeliverable?: true;
  /** How long nobody works on it. */
  readonly waitsMs?: number;
  /** Of a 500: after this many of them it is accepted. */
  readonly attempts?: number;
  /** Of a 429: it is answered for so long, and then the submission is accepted. */
  readonly holdsMs?: number;
}

const rejected = (reason: Reason): TestEnding => ({ answer: 202, reason });

/** Completed first, then its e-mail bounces. */
export const lateBounce = { ein: '000000009', reason: 'unknown_mailbox' } as const;

/** The outcome of each stands in docs/contract.md and in `ingest/openapi.yaml`. */
export const testEndings: ReadonlyMap<string, TestEnding> = new Map([
  ['000000000', { answer: 202 }],
  ['000000001', rejected(duplicateReason('ein', undefined, true))],
  ['000000002', rejected(duplicateReason('email', undefined, true))],
  ['000000003', { answer: 202, undeliverable: true }],
  ['000000004', rejected(discardedReason)],
  ['000000005', { answer: 202, waitsMs: 60_000 }],
  ['000000006', rejected(duplicateReason('ein', 'another partner', false))],
  ['000000007', { answer: 'none' }],
  ['000000008', { answer: 202, waitsMs: 3_600_000 }],
  [lateBounce.ein, { answer: 202 }],
  ['000000400', { answer: 400, fault: 'tooLarge' }],
  ['000000403', { answer: 403 }],
  ['000000408', { answer: 408, fault: 'bodyTooSlow' }],
  ['000000422', { answer: 422, fault: 'idempotencyMismatch' }],
  ['000000423', { answer: 422, fault: 'idempotencyErased' }],
  ['000000429', { answer: 429 }],
  ['000000430', { answer: 429, holdsMs: 30_000 }],
  ['000000500', { answer: 500 }],
  ['000000501', { answer: 500, attempts: 2 }],
]);

export const endingOf = (ein: unknown): TestEnding | undefined => testEndings.get(ein as string);

/*
 * The e-mail of a probe is the only one of a test that `PROBE_MAIL_TO` gets. Its applicant names an
 * interval, and a partner's tests are unique among themselves, so a second submission in the same
 * interval is rejected as a duplicate. It is tried once, and within the next interval.
 */

export const MAIL_PROBE_EVERY_MS = 600_000;
/** Added to the interval: the EIN, which chooses no ending. */
const MAIL_PROBES = { controller: 0, 'helm test': 500_000_000 } as const;

export const mailProbeInterval = (at: Date): number =>
  Math.floor(at.getTime() / MAIL_PROBE_EVERY_MS);

export function mailProbeOf(by: keyof typeof MAIL_PROBES, interval: number) {
  const ein = String(MAIL_PROBES[by] + interval).padStart(9, '0');
  return { email: `probe-mail+${ein}@example.com`, ein };
}

/** Of an applicant's address; undefined if it is no such probe. */
export function intervalOfMailProbe(email: string): number | undefined {
  const ein = /^probe-mail\+(\d{9})@example\.com$/.exec(email)?.[1];
  return ein === undefined ? undefined : Number(ein) % MAIL_PROBES['helm test'];
}
