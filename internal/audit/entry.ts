/** One entry of the operators' trail, as it is stored. */

/** What was done. Nothing personal of an applicant stands in it, so that it survives an erasure. */
export interface Deed {
  readonly action: string;
  readonly requestId?: string;
  readonly accountId?: string;
  readonly partnerId?: string;
  /** The beginning of the SHA-256 of an API key. */
  readonly keyId?: string;
  /** Records it was about, where it was about more than one. */
  readonly count?: number;
}

/**
 * Where the name of an operator comes from. Anybody can give `--as` or set `$USER`; only the
 * account of the operating system proves a name. `host`: nobody gave one, and `by` is the pod.
 */
export type NameFrom = '--as' | '$USER' | 'account' | 'host';

/**
 * One document of `operator_audit`, which is never changed: how a deed ended is an entry of its
 * own.
 */
export interface TrailEntry extends Deed {
  readonly _id: string;
  readonly at: Date;
  readonly by: string;
  readonly why?: string;
  readonly nameFrom: NameFrom;
  /**
   * `begun` without an entry that `ends` it: the command was cut off, and it may or may not have
   * happened.
   */
  readonly result: 'begun' | 'done' | 'not_done';
  /** Id of the `begun` entry whose result this is. */
  readonly ends?: string;
  readonly expiresAt: Date;
}
