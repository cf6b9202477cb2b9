/** Decides how a request ends, from facts that the caller gathered. */
import type { Application, ParsedApplication } from './parse-application.ts';
import { duplicateReason, type Reason } from './reasons.ts';

export type Decision<Accepted> =
  | { readonly verdict: 'reject'; readonly reasons: readonly Reason[] }
  | ({ readonly verdict: 'go_on' } & Accepted);

export function decideOnFields(parsed: ParsedApplication):
  | { readonly verdict: 'go_on'; readonly application: Application }
  | {
      readonly verdict: 'reject';
      readonly reasons: readonly Reason[];
      readonly claimed: Partial<Application>;
    } {
  return parsed.valid
    ? { verdict: 'go_on', application: parsed.application }
    : { verdict: 'reject', reasons: parsed.reasons, claimed: parsed.claimed };
}

/**
 * - `created`: by this attempt.
 * - `own`: by an earlier attempt of the request.
 * - `taken`: other requests' accounts hold the e-mail, the EIN or both.
 */
export type CreationFact =
  | { readonly kind: 'created' | 'own'; readonly accountId: string }
  | {
      readonly kind: 'taken';
      readonly emailBy?: string;
      readonly einBy?: string;
      /** Held by accounts of another partner. */
      readonly elsewhere?: readonly ('email' | 'ein')[];
    };

export function decideOnCreation(fact: CreationFact): Decision<{ readonly accountId: string }> {
  if (fact.kind !== 'taken') return { verdict: 'go_on', accountId: fact.accountId };
  const { elsewhere = [] } = fact;
  const reasons: Reason[] = [];
  if (fact.emailBy !== undefined) {
    reasons.push(duplicateReason('email', fact.emailBy, !elsewhere.includes('email')));
  }
  if (fact.einBy !== undefined)
    reasons.push(duplicateReason('ein', fact.einBy, !elsewhere.includes('ein')));
  return { verdict: 'reject', reasons };
}
