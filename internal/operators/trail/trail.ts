/** Records in `operator_audit` who read personal data or changed something, and why. */
import type { Collection, Db, Filter } from 'mongodb';
import { type Clock, DAY_MS, later } from '../../platform/process/clock.ts';
import { defined } from '../../platform/process/defined.ts';
import { firstIdAt, newId, timeOfId } from '../../platform/stores/ids.ts';
import { bounded } from '../../platform/stores/mongo-read.ts';
import { operatorAudit } from '../../self-audit/walk.ts';

/** Entries shown of one request, the newest. */
const TRAIL_SHOWN = 50;
/** Two years: longer than any record is kept. */
const TRAIL_DAYS = 730;

/** Of the console's orders of many: its plan, its confirmation and its run. */
export const ORDER_ENDS_WITHIN_MS = 3 * 3_600_000;

/** What an operator did, without an applicant's personal data, so that it survives an erasure. */
export interface OperatorAction {
  readonly action: string;
  readonly requestId?: string;
  /** The requests that a search showed. */
  readonly requestIds?: readonly string[];
  readonly accountId?: string;
  readonly partnerId?: string;
  /** The beginning of the SHA-256 of an API key. */
  readonly keyId?: string;
  readonly count?: number;
  /** The source of partner keys to which `installation move` gave the database. */
  readonly keysOf?: string;
  /** Findings of the self-audit that the operator put aside, as `findingName` has them. */
  readonly aside?: readonly string[];
  /** Id of the console's session that the person ended. */
  readonly session?: string;
  /** Id of the console's order of many that this is a part of. */
  readonly order?: string;
}

/**
 * The source of the operator's name. Anybody can set `--as` or `$USER`; only an operating system
 * account, or an OpenID provider (`oidc`), proves a name. With `host`, `by` is the pod; with
 * `console`, it is anybody who may forward a port to it.
 */
export type NameFrom = '--as' | '$USER' | 'account' | 'host' | 'console' | 'oidc';

/** A document of `operator_audit`, never changed: the result is a separate entry. */
export interface TrailEntry extends OperatorAction {
  readonly _id: string;
  readonly at: Date;
  readonly by: string;
  /** With `oidc`: the provider's id of the person, which stays when an e-mail address changes. */
  readonly sub?: string;
  readonly why?: string;
  readonly nameFrom: NameFrom;
  /** Without an entry that `ends` it, a `begun` command was cut off and may have taken effect. */
  readonly result: 'begun' | 'done' | 'not_done';
  /** Id of the `begun` entry. */
  readonly ends?: string;
  readonly expiresAt: Date;
}

interface TrailOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly by: string;
  readonly sub?: string;
  readonly nameFrom: NameFrom;
  readonly why?: string;
  /** Gets each written entry, for a place that the database's users cannot change. */
  readonly copy: (entry: TrailEntry) => void;
}

export class Trail {
  readonly #entries: Collection<TrailEntry>;
  readonly #options: TrailOptions;
  readonly by: string;
  readonly nameFrom: NameFrom;

  constructor(options: TrailOptions) {
    this.#entries = operatorAudit<TrailEntry>(options.db);
    this.#options = options;
    this.by = options.by;
    this.nameFrom = options.nameFrom;
  }

  /** If this fails, personal data must not be shown. */
  async revealed(action: OperatorAction): Promise<void> {
    await this.#append(action, { result: 'done' });
  }

  /** Notes an action that the operator may not do. */
  async refused(action: OperatorAction): Promise<void> {
    await this.#append(action, { result: 'not_done' });
  }

  /** Ends the session at each pod of the console. */
  async loggedOut(session: string): Promise<void> {
    await this.#append({ action: 'log out', session }, { result: 'done' });
  }

  /** Returns the console's sessions that people ended after `since`. */
  async endedSessions(since: Date): Promise<string[]> {
    const ended = { _id: { $gte: firstIdAt('opr', since) }, session: { $exists: true } };
    const entries = await this.#entries.find(ended, bounded).toArray();
    return entries.flatMap(({ session = [] }) => session);
  }

  /**
   * Notes the action before `act` and its result after, and returns what `act` returns: false, 0 or
   * undefined says that nothing was changed.
   */
  async record<T>(action: OperatorAction, act: () => Promise<T>): Promise<T> {
    const begun = await this.#append(action, { result: 'begun' });
    const result = await act();
    await this.#append(action, { result: result ? 'done' : 'not_done', ends: begun._id });
    return result;
  }

  /** Returns operators' actions on a request, oldest first, each with its result. */
  async ofRequest(requestId: string): Promise<TrailEntry[]> {
    return (await this.#newest({ requestId }, TRAIL_SHOWN)).toReversed();
  }

  /** Returns the parts of a console's order of many, at most `limit`, the newest first. */
  async ofOrder(order: string, limit: number): Promise<TrailEntry[]> {
    const begun = timeOfId(order);
    if (begun === undefined) return [];
    const within = {
      $gte: firstIdAt('opr', begun),
      $lt: firstIdAt('opr', later(begun, ORDER_ENDS_WITHIN_MS)),
    };
    return this.#newest({ order, _id: within }, limit);
  }

  /** Returns at most `limit` actions with their results, newest first, older than `before`. */
  newest(
    limit: number,
    { before, about }: { readonly before?: string; readonly about?: 'aside' } = {},
  ): Promise<TrailEntry[]> {
    const filter = {
      ...(before && { _id: { $lt: before } }),
      ...(about && { [about]: { $exists: true } }),
    };
    return this.#newest(filter, limit);
  }

  async #newest(filter: Filter<TrailEntry>, limit: number): Promise<TrailEntry[]> {
    const actions = await this.#entries
      .find({ ...filter, ends: { $exists: false } }, bounded)
      .sort({ _id: -1 })
      .limit(limit)
      .toArray();
    const ids = actions.map(({ _id }) => _id);
    const endings = await this.#entries.find({ ends: { $in: ids } }, bounded).toArray();
    const results = new Map(endings.map(({ ends, result }) => [ends, result]));
    return actions.map((entry) => ({ ...entry, result: results.get(entry._id) ?? entry.result }));
  }

  async #append(
    action: OperatorAction,
    ending: Pick<TrailEntry, 'result' | 'ends'>,
  ): Promise<TrailEntry> {
    const { clock, by, sub, nameFrom, why, copy } = this.#options;
    const at = clock.now();
    const entry: TrailEntry = {
      _id: newId('opr', at),
      at,
      by,
      ...defined({ sub }),
      nameFrom,
      ...action,
      ...defined({ why }),
      ...ending,
      expiresAt: later(at, TRAIL_DAYS * DAY_MS),
    };
    await this.#entries.insertOne(entry);
    copy(entry);
    return entry;
  }
}
