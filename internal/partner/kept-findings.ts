/** What the self-audit has found and how far its walk came, for the next leader and the console. */
import type { Collection, Db } from 'mongodb';
import { bounded } from '../platform/stores/mongo-read.ts';
import { partnerKeys } from './key-document.ts';

const SELF_AUDIT = 'self_audit';

export interface Finding<Kind extends string = string> {
  readonly kind: Kind;
  /** Of a request or an account. */
  readonly id: string;
  readonly at: Date;
}

interface AuditDocument {
  readonly _id: typeof SELF_AUDIT;
  /** The last id of the walk; absent where it begins again. */
  readonly reached?: string | undefined;
  readonly found: readonly Finding[];
}

export class KeptFindings {
  /** Beside the keys, where the leader may write. */
  readonly #documents: Collection<AuditDocument>;

  constructor(db: Db) {
    this.#documents = partnerKeys<AuditDocument>(db);
  }

  async read(): Promise<Pick<AuditDocument, 'reached' | 'found'>> {
    return (await this.#documents.findOne({ _id: SELF_AUDIT }, bounded)) ?? { found: [] };
  }

  async keep(reached: string | undefined, found: readonly Finding[]): Promise<void> {
    await this.#documents.replaceOne(
      { _id: SELF_AUDIT },
      { reached, found },
      { upsert: true, ignoreUndefined: true },
    );
  }
}
