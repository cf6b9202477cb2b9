/** Where partner Secrets come from: the seam between the Kubernetes API and a folder of manifests. */
import type { PartnerSecret, Problem } from '../partner/key-secret.ts';

export interface SecretList {
  readonly secrets: readonly PartnerSecret[];
  /** What could not be read. */
  readonly problems: readonly Problem[];
  /** False when something could not be read: then nothing may be removed. */
  readonly complete: boolean;
}

export interface SecretSource {
  /** Names this installation in every key document: only its own are ever removed. */
  readonly owner: string;
  /** All partner Secrets as of now; rejects when they cannot be listed at all. */
  list(): Promise<SecretList>;
  /** Calls `onChange` after something may have changed, until `signal` aborts. May call too often, never too rarely. */
  watch(onChange: () => void, signal: AbortSignal): void;
}
