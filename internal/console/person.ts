/** Who looks, and what they may see. */
import type { NameFrom } from '../audit/entry.ts';

/** `viewer` sees everything masked; `support` may reveal. */
export type Role = 'viewer' | 'support';

export interface Person {
  readonly name: string;
  /** `oidc`: proven by the provider. `console`: anybody who reached the loopback of the pod. */
  readonly nameFrom: Extract<NameFrom, 'console' | 'oidc'>;
  readonly role: Role;
}
