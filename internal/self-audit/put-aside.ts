/**
 * Which findings operators put aside: of `operator_audit`, the service reads these entries and
 * ensures the indexes. Only operators write it, and only they read the rest (`operators/trail`).
 */
import type { Collection, Db, Filter } from 'mongodb';
import type { IndexDefinition } from '../platform/stores/mongo-indexes.ts';
import { bounded } from '../platform/stores/mongo-read.ts';

const ASIDE_READ = 1_000;

export const OPERATOR_AUDIT = 'operator_audit';

export const operatorAuditIndexes: readonly IndexDefinition[] = [
  {
    collection: OPERATOR_AUDIT,
    name: 'operator_audit_request',
    key: { requestId: 1 },
    sparse: true,
  },
  { collection: OPERATOR_AUDIT, name: 'operator_audit_ends', key: { ends: 1 }, sparse: true },
  { collection: OPERATOR_AUDIT, name: 'operator_audit_aside', key: { aside: 1 }, sparse: true },
  {
    collection: OPERATOR_AUDIT,
    name: 'operator_audit_expiry',
    key: { expiresAt: 1 },
    expireAfterSeconds: 0,
  },
];

/** What the service must know of an entry. */
export interface AsideEntry {
  readonly _id: string;
  readonly at: Date;
  readonly by: string;
  readonly why?: string;
  readonly requestId?: string;
  readonly accountId?: string;
  /** Findings of the self-audit that the operator put aside, as `findingName` has them. */
  readonly aside?: readonly string[];
  readonly result: string;
  /** Id of the entry that this one ends. */
  readonly ends?: string;
}

export const operatorAudit = <Entry extends AsideEntry>(db: Db): Collection<Entry> =>
  db.collection<Entry>(OPERATOR_AUDIT);

export class PutAside {
  readonly #entries: Collection<AsideEntry>;

  constructor(db: Db) {
    this.#entries = operatorAudit(db);
  }

  /** Returns which of these findings are put aside, each with the operator's entry. */
  async of(findings: readonly string[]): Promise<ReadonlyMap<string, AsideEntry>> {
    if (findings.length === 0) return new Map();
    const filter = { aside: { $in: [...findings] }, ends: { $exists: true }, result: 'done' };
    const entries = await this.#entries.find(filter as Filter<AsideEntry>, bounded).toArray();
    return new Map(entries.flatMap((entry) => (entry.aside ?? []).map((name) => [name, entry])));
  }

  /** Returns the requests and accounts whose findings the newest such entries put aside. */
  async ids(): Promise<string[]> {
    const done = { aside: { $exists: true }, ends: { $exists: true }, result: 'done' } as const;
    const entries = await this.#entries
      .find(done, bounded)
      .sort({ _id: -1 })
      .limit(ASIDE_READ)
      .toArray();
    return entries.flatMap(({ requestId = [], accountId = requestId }) => accountId);
  }
}
