/** One entry of the audit trail, as stored. */

/** What an operator did, without an applicant's personal data, so that it survives an erasure. */
export interface OperatorAction {
  readonly action: string;
  readonly requestId?: string;
  /** That a search showed. */
  readonly requestIds?: readonly string[];
  readonly accountId?: string;
  readonly partnerId?: string;
  /** The beginning of the SHA-256 of an API key. */
  readonly keyId?: string;
  readonly count?: number;
  /** Findings of the self-audit that the operator put aside, as `findingName` has them. */
  readonly aside?: readonly string[];
  /** Id of the console's session that the person ended. */
  readonly session?: string;
}

/**
 * The source of the operator's name. Anybody can set `--as` or `$USER`; only an operating system
 * account, or an OpenID provider (`oidc`), proves a name. With `host`, `by` is the pod; with
 * `console`, it is anybody who may forward a port to it.
 */
export type NameFrom = '--as' | '$USER' | 'account' | 'host' | 'console' | 'oidc';

/** A document of `operator_audit`, never changed: the result is a separate entry. */
export interface TrailEntry extends OperatorAction {
  readonly _id: string;
  readonly at: Date;
  readonly by: string;
  /** With `oidc`: the provider's id of the person, which stays when an e-mail address changes. */
  readonly sub?: string;
  readonly why?: string;
  readonly nameFrom: NameFrom;
  /** Without an entry that `ends` it, a `begun` command was cut off and may have taken effect. */
  readonly result: 'begun' | 'done' | 'not_done';
  /** Id of the `begun` entry. */
  readonly ends?: string;
  readonly expiresAt: Date;
}
