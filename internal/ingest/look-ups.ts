/** Reads what look-ups ask for, all that wait together; each partner has its share of them. */
import { withDeadline } from '../platform/deadline.ts';
import { newDispatcher } from '../platform/dispatcher.ts';
import { FairShares, type Owner } from '../platform/fair-shares.ts';
import type { StatusRecord } from '../submission/status-reader.ts';
import { SHARED, STATUS_TIMEOUT_MS } from './limits.ts';

/** Two queries under way keep the database and the process busy. */
const QUERIES = 2;

export type ReadStatuses = (requestIds: readonly string[]) => Promise<readonly StatusRecord[]>;

interface LookUp {
  readonly requestId: string;
  resolve(found: StatusRecord | undefined): void;
  reject(error: unknown): void;
}

export class LookUps {
  readonly #read: ReadStatuses;
  readonly #shares = new FairShares<LookUp>(SHARED.lookUps, (lookUp) =>
    lookUp.reject(new Error(`more than ${SHARED.lookUps} look-ups are under way`)),
  );
  readonly #waiting = new Set<LookUp>();
  readonly #dispatcher = newDispatcher<LookUp>(
    QUERIES,
    () => this.#takeAll(),
    (lookUps) => this.#send(lookUps),
  );

  constructor(read: ReadStatuses) {
    this.#read = read;
  }

  /** Undefined where the partner has no such request; rejects where that cannot be said in time. */
  async find(requestId: string, owner: Owner): Promise<StatusRecord | undefined> {
    const { promise, ...settle } = Promise.withResolvers<StatusRecord | undefined>();
    const lookUp = { requestId, ...settle };
    this.#waiting.add(lookUp);
    this.#shares.hold(lookUp, owner);
    this.#dispatcher.plan();
    try {
      const found = await withDeadline(promise, STATUS_TIMEOUT_MS, 'reading a status');
      return found?.partnerId === owner[0] ? found : undefined;
    } finally {
      this.#waiting.delete(lookUp);
      this.#shares.release(lookUp);
    }
  }

  #takeAll(): readonly LookUp[] {
    const all = [...this.#waiting];
    this.#waiting.clear();
    return all;
  }

  async #send(lookUps: readonly LookUp[]): Promise<void> {
    try {
      const found = await this.#read([...new Set(lookUps.map(({ requestId }) => requestId))]);
      const byId = new Map(found.map((record) => [record._id, record]));
      for (const lookUp of lookUps) lookUp.resolve(byId.get(lookUp.requestId));
    } catch (error) {
      for (const lookUp of lookUps) lookUp.reject(error);
    }
  }
}
