/** Reads what versions of the service without codes have written for people. */
import type { StoredFact } from '../../submission/submission.ts';

const UNUSABLE = /^the mail server could not be used \(([^)]*)\)$/;

/** Of a last error or a reason in the history. */
export function olderFact(words: string): StoredFact {
  const of = UNUSABLE.exec(words)?.[1];
  return of === undefined ? { words } : { code: 'relay_unusable', of, words };
}

/** `reason` is of the history; the order had the reason `why`, or an empty one. */
export function isOlderResendOfMany(reason: string | undefined, why: string): boolean {
  return reason?.startsWith(`operator resend of many${why && ` (${why})`} by `) === true;
}

/** The server that a sentence of an older pod's `/readyz` begins with. */
export function olderServerOf(sentence: string): string | undefined {
  return /^(?:Relay|MongoDB)\b/.exec(sentence)?.[0];
}
