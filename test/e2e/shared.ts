/** The values that the set-up passes to test files and tear-down. */
import type { ClusterTools } from './cluster.ts';
import type { Images } from './images.ts';
import type { Ingress } from './ingress.ts';
import type { Release } from './release.ts';

export const WORLD_VARIABLE = 'E2E_WORLD';

export interface Shared {
  readonly tools: ClusterTools;
  readonly images: Images;
  readonly release: Release;
  /** Undefined without an ingress controller: partners then use the NodePort. */
  readonly ingress: Ingress | undefined;
  /** Standard error of the first install. */
  readonly installSaid: string;
}
