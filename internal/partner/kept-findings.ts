/**
 * The leading controller's findings (self-audit, partner Secrets), for other processes and the next
 * leader.
 */
import type { Collection, Db } from 'mongodb';
import { Turns } from '../fair/turns.ts';
import type { Clock } from '../platform/process/clock.ts';
import { defined } from '../platform/process/defined.ts';
import { bounded } from '../platform/stores/mongo-read.ts';
import { partnerKeys } from './key-document.ts';
import { isPartnerId, type Problem, secretName } from './key-secret.ts';

const SELF_AUDIT = 'self_audit';

export interface Finding<Kind extends string = string> {
  readonly kind: Kind;
  /** The id of a request or an account. */
  readonly id: string;
  readonly at: Date;
}

interface AuditDocument {
  readonly _id: typeof SELF_AUDIT;
  /** The last id that the walk reached; absent if it begins again. */
  readonly reached?: string | undefined;
  readonly found: readonly Finding[];
}

/** Findings of the self-audit, and how far its walk came. */
export class KeptFindings {
  /** Stored in the keys' collection, where the leader may write. */
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

/** Problems of all partners. */
const OF_ALL = new Set<string>(['keys_would_end', 'keys_nearly_full', 'unreadable_namespace']);

/**
 * One problem for each Secret and code: first those of all partners, then one of each partner in
 * turn, so that a list that is cut tells of as many partners as possible.
 */
export function inTurn(problems: readonly Problem[]): readonly Problem[] {
  const alike = Map.groupBy(problems, ({ source, code }) =>
    JSON.stringify([secretName(source), code]),
  );
  const turns = new Turns<Problem>();
  const first: Problem[] = [];
  for (const [problem, ...more] of alike.values()) {
    const { message, partnerId = '', code } = problem!;
    const words = more.length === 0 ? message : `${message}; ${more.length} more like it`;
    const told = { ...problem!, message: words };
    if (OF_ALL.has(code)) first.push(told);
    else turns.put(partnerId, told);
  }
  return [...first, ...turns.take(() => true)];
}

const PROBLEMS = 'problems';
/** The metric counts further problems. */
const KEPT = 500;

export interface SecretProblem extends Pick<Problem, 'code' | 'message'> {
  /** The Secret as `namespace/name`; empty for a problem of all Secrets. */
  readonly secret: string;
  readonly partnerId?: string;
  readonly since: Date;
}

interface ProblemDocument {
  readonly _id: typeof PROBLEMS;
  readonly problems: readonly SecretProblem[];
}

export class SecretProblems {
  /** Apart from the keys: a new problem must not make ingest read all keys again. */
  readonly #documents: Collection<ProblemDocument>;
  readonly #clock: Clock;
  #written: string | undefined;

  constructor({ db, clock }: { readonly db: Db; readonly clock: Clock }) {
    this.#documents = partnerKeys<ProblemDocument>(db);
    this.#clock = clock;
  }

  async list(): Promise<readonly SecretProblem[]> {
    return (await this.#documents.findOne({ _id: PROBLEMS }, bounded))?.problems ?? [];
  }

  /**
   * Called by the leader, with problems in the order of `inTurn`. Keeps `since` of known problems; writes only
   * changes.
   */
  async keep(problems: readonly Problem[]): Promise<void> {
    const kept = problems.slice(0, KEPT);
    const wanted = JSON.stringify(kept);
    if (wanted === this.#written) return;
    const before = new Map((await this.list()).map((one) => [keyOf(one), one.since]));
    const rows = kept.map(({ source, partnerId, code, message }): SecretProblem => {
      const secret = source.name === '' ? '' : secretName(source);
      const since = before.get(keyOf({ secret, code })) ?? this.#clock.now();
      const known = partnerId !== undefined && isPartnerId(partnerId);
      return {
        secret,
        code,
        message,
        since,
        ...defined({ partnerId: known ? partnerId : undefined }),
      };
    });
    await this.#documents.replaceOne({ _id: PROBLEMS }, { problems: rows }, { upsert: true });
    this.#written = wanted;
  }

  /** The next `keep` writes: another leader may have written since. */
  forget(): void {
    this.#written = undefined;
  }
}

const keyOf = ({ secret, code }: Pick<SecretProblem, 'secret' | 'code'>) =>
  JSON.stringify([secret, code]);
