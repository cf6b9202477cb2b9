/**
 * Where partner Secrets come from: the seam between the Kubernetes API and a folder of manifests.
 */
import type { KeySource, PartnerSecret, Problem } from '../partner/key-secret.ts';

export interface SecretList {
  readonly secrets: readonly PartnerSecret[];
  /** What could not be read. */
  readonly problems: readonly Problem[];
  /** Whether everything has been read. */
  readonly complete: boolean;
  /**
   * Whether a key that came from `source` and is not in this list is gone: only then may it be
   * removed.
   */
  provesGone(source: KeySource): boolean;
  /** When all of it was last known to be what the source holds. */
  readonly asOf: Date;
}

export interface SecretView {
  /** All partner Secrets as last seen; rejects when they cannot be read at all. */
  list(): Promise<SecretList>;
  /** Why what `list` gives may be out of date; empty when it is not. */
  faults(): readonly string[];
}

export interface SecretSource {
  /**
   * Reads everything anew and keeps up with it until `signal` aborts. Calls `onChange` after
   * something may have changed: perhaps too often, never too rarely.
   */
  follow(onChange: () => void, signal: AbortSignal): SecretView;
}
