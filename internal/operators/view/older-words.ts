/** Reads what versions of the service without codes have written for people. */
import type { StoredFact } from '../../submission/submission.ts';

const UNUSABLE = /^the mail server could not be used \(([^)]*)\)$/;
const STEP_FAILED = /^(?:creating the account|mailing the applicant) failed: (.*)$/;
const WORKERS_DIED = 'its workers ended without a word, several times';

/** Of a last error or a reason in the history. */
export function olderFact(words: string): StoredFact {
  if (words === WORKERS_DIED) return { code: 'workers_died', words };
  for (const [code, pattern] of [
    ['relay_unusable', UNUSABLE],
    ['step_failed', STEP_FAILED],
  ] as const) {
    const of = pattern.exec(words)?.[1];
    if (of !== undefined) return { code, of, words };
  }
  return { words };
}

/** `reason` is of the history; the order had the reason `why`, or an empty one. */
export function isOlderResendOfMany(reason: string | undefined, why: string): boolean {
  return reason?.startsWith(`operator resend of many${why && ` (${why})`} by `) === true;
}

/** The server that a sentence of an older pod's `/readyz` begins with. */
export function olderServerOf(sentence: string): string | undefined {
  return /^(?:Relay|MongoDB)\b/.exec(sentence)?.[0];
}
