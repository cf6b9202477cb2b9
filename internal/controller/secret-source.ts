/** The interface of the sources of partner Secrets. */
import type { KeySource, PartnerSecret, Problem } from '../partner/key-secret.ts';

export interface SecretList {
  readonly secrets: readonly PartnerSecret[];
  readonly problems: readonly Problem[];
  readonly complete: boolean;
  /** Only a key that is proven gone may be removed. */
  provesGone(source: KeySource): boolean;
  /** When the list was last current. */
  readonly asOf: Date;
}

export interface SecretView {
  list(): Promise<SecretList>;
  faults(): readonly string[];
  /** How often to list without a change; a minute by default. */
  readonly everyMs?: number;
}

export interface SecretSource {
  /** `onChange` may be called too often; a change that it misses is seen after `everyMs`. */
  follow(onChange: () => void, signal: AbortSignal): SecretView;
}
