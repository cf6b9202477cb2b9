/** What the set-up hands to the test files and to the tear-down. */
import type { ClusterTools } from './cluster.ts';
import type { Images } from './images.ts';
import type { Ingress } from './ingress.ts';
import type { Release } from './release.ts';

/** The environment variable it travels in, as JSON. */
export const WORLD_VARIABLE = 'E2E_WORLD';

export interface Shared {
  readonly tools: ClusterTools;
  readonly images: Images;
  readonly release: Release;
  /** Undefined where none can be had: partners then come through the NodePort. */
  readonly ingress: Ingress | undefined;
  /** What the first install said on standard error. */
  readonly installSaid: string;
}
