/** Decides how a request ends whose fields are valid, from facts that the caller gathered. */
import { duplicateReason, type Reason } from './reasons.ts';

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

type Decision =
  | { readonly verdict: 'reject'; readonly reasons: readonly Reason[] }
  | { readonly verdict: 'go_on'; readonly accountId: string };

export function decideOnCreation(fact: CreationFact): Decision {
  if (fact.kind !== 'taken') return { verdict: 'go_on', accountId: fact.accountId };
  const { emailBy, einBy, elsewhere = [] } = fact;
  const reasons = [['email', emailBy] as const, ['ein', einBy] as const].flatMap(([field, by]) =>
    by === undefined ? [] : [duplicateReason(field, by, !elsewhere.includes(field))],
  );
  return { verdict: 'reject', reasons };
}
