/** The stores that views read; each function picks those it needs. */
import type { AccountQueries } from '../../account/account-store.ts';
import type { Trail } from '../trail/trail.ts';
import type { PartnerHolds } from '../../partner/flags.ts';
import type { KeyStore } from '../../partner/key-store.ts';
import type { PutAside } from '../../self-audit/walk.ts';
import type { SupportQueries } from '../../submission/support-queries.ts';
import type { TrafficReader } from '../../traffic/traffic-reader.ts';

export interface Reads {
  readonly submissions: SupportQueries;
  readonly accounts: AccountQueries;
  readonly keys: Pick<KeyStore, 'list' | 'disabled' | 'problems'>;
  readonly holds: Pick<PartnerHolds, 'list' | 'isSet'>;
  readonly trail: Pick<Trail, 'ofRequest' | 'newest'>;
  readonly traffic: TrafficReader;
  readonly aside: Pick<PutAside, 'of' | 'ids'>;
  /** The shortest retention of an account's request, by today's settings. */
  readonly accountRequestsKeptMs: number;
}
