/** Decides how a request ends whose fields are valid, from facts that the caller gathered. */
import { duplicateReason, type Reason } from './reasons.ts';

/** An account of another request that has the same value. */
export interface Holder {
  readonly field: 'email' | 'ein';
  readonly requestId: string;
  readonly samePartner: boolean;
}

/**
 * - `created`: by this attempt.
 * - `own`: by an earlier attempt of the request.
 */
export type CreationFact =
  | { readonly kind: 'created' | 'own'; readonly accountId: string }
  | { readonly kind: 'taken'; readonly holders: readonly Holder[] };

type Decision =
  | { readonly verdict: 'reject'; readonly reasons: readonly Reason[] }
  | { readonly verdict: 'go_on'; readonly accountId: string };

export function decideOnCreation(fact: CreationFact): Decision {
  if (fact.kind !== 'taken') return { verdict: 'go_on', accountId: fact.accountId };
  const reasons = fact.holders.map(({ field, requestId, samePartner }) =>
    duplicateReason(field, requestId, samePartner),
  );
  return { verdict: 'reject', reasons };
}
