/** With a test key, the EIN chooses the ending, so that partners can try all. */
import { discardedReason, duplicateReason, type Reason } from './reasons.ts';

export interface TestEnding {
  /** `none`: accepted, but the connection is closed without an answer. */
  readonly answer: 202 | 400 | 403 | 408 | 422 | 429 | 500 | 'none';
  /** Answered and recorded as if the request had this fault. */
  readonly fault?: 'tooLarge' | 'bodyTooSlow' | 'idempotencyMismatch' | 'idempotencyErased';
  readonly reason?: Reason;
  /** Acts as if the relay refused the applicant's address. */
  readonly undeliverable?: true;
  /** How long the submission waits for a worker. */
  readonly waitsMs?: number;
  /** After this many 500s the submission is accepted. */
  readonly attempts?: number;
  /** For 429: how long it is repeated; then submissions are accepted for a minute. */
  readonly holdsMs?: number;
}

const rejected = (reason: Reason): TestEnding => ({ answer: 202, reason });

/** A test with this EIN always completes. */
export const COMPLETES = '000000000';

/** A test with this EIN is completed; later its e-mail bounces. */
export const lateBounce = { ein: '000000009', reason: 'unknown_mailbox' } as const;

/** Described in docs/contract.md and `ingest/openapi.yaml`. */
export const testEndings: ReadonlyMap<string, TestEnding> = new Map([
  [COMPLETES, { answer: 202 }],
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
 * Probes: tests of the leading controller. Ingest knows them by the controller's own key
 * (`KeyTerms.probe`), so no other key's tests count as probes, whatever they contain.
 */

/**
 * - `outcome`: without an e-mail, whatever `TEST_MAIL_TO` says: it tells nothing of the relay.
 * - `mail`: its e-mail goes to `PROBE_MAIL_TO`. Address and EIN contain the number of an interval,
 *   so a second one in it is rejected as a duplicate. The e-mail is tried once, at latest in the
 *   next interval.
 */
export type ProbeKind = 'outcome' | 'mail';

interface Named {
  readonly email?: unknown;
  readonly ein?: unknown;
}

export const outcomeProbeAt = (at: Date) => ({
  email: `probe+${at.getTime()}@example.com`,
  ein: COMPLETES,
});

export const MAIL_PROBE_EVERY_MS = 600_000;

export const mailProbeInterval = (at: Date): number =>
  Math.floor(at.getTime() / MAIL_PROBE_EVERY_MS);

/** Its EIN chooses no ending. */
export function mailProbeOf(interval: number) {
  const ein = String(interval).padStart(9, '0');
  return { email: `probe-mail+${ein}@example.com`, ein };
}

/** Reads the interval; undefined if it is no mail probe. */
export function intervalOfMailProbe({ email, ein }: Named): number | undefined {
  const isOne = typeof ein === 'string' && /^\d{9}$/.test(ein);
  return isOne && email === mailProbeOf(Number(ein)).email ? Number(ein) : undefined;
}

/** What a submission with the controller's key is; undefined if it is any other test. */
export function probeOf(fields: Named): ProbeKind | undefined {
  if (intervalOfMailProbe(fields) !== undefined) return 'mail';
  const { email, ein } = fields;
  const isOutcome = ein === COMPLETES && /^probe\+\d+@example\.com$/.test(String(email));
  return isOutcome ? 'outcome' : undefined;
}

/**
 * Owns the accounts of mail probes, so that they are unique in the installation, whichever partner
 * has the key. No partner id has a blank.
 */
export const MAIL_PROBES = 'mail probes';
