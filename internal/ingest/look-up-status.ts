/** Look-ups and lists: authenticate, read, perhaps wait, answer; nothing is recorded. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { reasonsForPartner } from '../application/reasons.ts';
import { FairShares, type Owner } from '../fair/shares.ts';
import { Turns } from '../fair/turns.ts';
import { ownerName } from '../partner/key-terms.ts';
import { type Batcher, newBatcher } from '../platform/process/batcher.ts';
import { withDeadline } from '../platform/process/deadline.ts';
import { defined } from '../platform/process/defined.ts';
import type { Logger } from '../platform/process/log.ts';
import type { Loops } from '../platform/process/loop.ts';
import { cardOf, cards, states } from '../submission/states.ts';
import type {
  ListPage,
  ListQuery,
  StatusReader,
  StatusRecord,
} from '../submission/status-reader.ts';
import { authenticate, type KeyTools } from './authenticate.ts';
import { MAX_WAIT_SECONDS, SHARED, STATUS_TIMEOUT_MS } from './bounds.ts';
import {
  listQuery,
  listQueryFault,
  requestId,
  type Status,
  statusMessages,
  testMessages,
  timeOf,
} from './contract.ts';
import { answerEarly, errors, listQueryInvalid, sendEarly } from './errors.ts';

const LISTED = 'Your requests, newest first';

export interface LookUpTools extends KeyTools {
  readonly log: Logger;
  readonly statuses: Statuses;
}

export function authenticateLookUp(
  request: FastifyRequest,
  reply: FastifyReply,
  tools: LookUpTools,
): boolean {
  if (!tools.keys.loaded) {
    answerEarly(request, reply, errors.statusUnavailable);
    return false;
  }
  const refusal = authenticate(request, tools);
  if (refusal !== undefined) answerEarly(request, reply, refusal.answer);
  return refusal === undefined;
}

/** Answers, or rejects if the database does not answer. */
type Read = (
  request: FastifyRequest,
  reply: FastifyReply,
  tools: LookUpTools,
  owner: Owner,
  gone: AbortSignal,
) => Promise<void>;

export async function answerRead(
  read: Read,
  request: FastifyRequest,
  reply: FastifyReply,
  tools: LookUpTools,
): Promise<FastifyReply> {
  reply.header('cache-control', 'no-store');
  request.incomingBody.drop();
  const gone = new AbortController();
  reply.raw.once('close', () => gone.abort());
  try {
    const owner = ownerName(request.partnerId, request.terms);
    await read(request, reply, tools, [owner, request.client.limitKey], gone.signal);
  } catch (error) {
    tools.log.debug({ err: error, request_id: request.id }, 'a status could not be read');
    answerEarly(request, reply, errors.statusUnavailable);
  }
  return reply;
}

export const lookUpStatus: Read = async (request, reply, tools, owner, gone) => {
  const asked = requestId.safeParse((request.params as { request_id: string }).request_id);
  const now = asked.success ? await tools.statuses.find(asked.data, owner, gone) : undefined;
  if (now === undefined) {
    answerEarly(request, reply, errors.requestUnknown);
    return;
  }
  const seconds = secondsToWait(request.headers['prefer']);
  const { record, waited } =
    seconds === undefined
      ? { record: now, waited: false }
      : await tools.statuses.wait(now, owner, seconds * 1_000, gone);
  // The key may have ended meanwhile.
  if (seconds !== undefined && !authenticateLookUp(request, reply, tools)) return;
  if (waited) reply.header('preference-applied', `wait=${seconds}`);
  const data = dataOf(record);
  const message = (data.test && testMessages[data.state]) ?? statusMessages[data.state];
  sendEarly(request, reply, 200, { message, data });
};

/** RFC 7240: only the first `wait` counts; a malformed one is ignored. */
function secondsToWait(prefer: string | string[] | undefined): number | undefined {
  // A comma within quotes separates nothing.
  const preferences = String(prefer ?? '').match(/(?:[^",]|"(?:[^"\\]|\\.)*"?)+/g) ?? [];
  const first = preferences.find((preference) => /^\s*wait\s*(?:[=;]|$)/i.test(preference));
  const [, plain, inQuotes] = /^\s*wait\s*=\s*(?:(\d+)|"(\d+)")\s*(?:;|$)/i.exec(first ?? '') ?? [];
  const wait = plain ?? inQuotes;
  return wait === undefined ? undefined : Math.min(Number(wait), MAX_WAIT_SECONDS);
}

/** A partner's own requests, newest first, to find lost answers. */
export const listSubmissions: Read = async (request, reply, tools, owner, gone) => {
  const fault = listQueryFault(request.query as Record<string, unknown>);
  if (fault !== undefined) {
    sendEarly(request, reply, 400, { error: listQueryInvalid(fault) });
    return;
  }
  const asked = listQuery.parse(request.query);
  const { since, until, state, cursor, idempotency_key: idempotencyKey } = asked;
  const { records, next } = await tools.statuses.list(
    {
      partnerId: request.partnerId,
      test: request.terms.test,
      since: since ? timeOf(since) : undefined,
      until: until ? timeOf(until) : undefined,
      states: state ? states.filter((each) => cards[each].status === state) : undefined,
      before: cursor || undefined,
      idempotencyKey: idempotencyKey || undefined,
    },
    owner,
    gone,
  );
  sendEarly(request, reply, 200, {
    message: LISTED,
    data: {
      submissions: records.map((record) => ({
        ...dataOf(record),
        ...defined({ idempotency_key: idempotencyKey || undefined }),
      })),
      ...defined({ next_cursor: next }),
    },
  });
};

function dataOf(record: StatusRecord) {
  return {
    request_id: record._id,
    ...defined({ test: record.test }),
    state: statusOf(record),
    received_at: record.receivedAt.toISOString(),
    updated_at: record.stateAt.toISOString(),
    reasons: reasonsForPartner(record.reasons ?? []),
  };
}

const LOOK_EVERY_MS = 1_000;
/**
 * After this time without success `loop_failing` is 1. It is shorter than `MAX_WAIT_SECONDS`, because
 * rounds read the database, and so can fail, only while a client waits.
 */
const WAITS_FAIL_AFTER_MS = 10_000;

export function statusOf({ state }: Pick<StatusRecord, 'state'>): Status {
  // A newer version may have written an unknown state.
  return cardOf(state)?.status ?? 'processing';
}

interface Wait {
  record: StatusRecord;
  /** `waited` is true if the state is final or the time has passed, else the wait ended early. */
  end(waited: boolean): void;
}

interface StatusTools {
  readonly reader: Pick<StatusReader, 'read' | 'list'>;
  /** Aborts when the process drains. */
  readonly drain: AbortSignal;
  readonly loops: Pick<Loops<'status_waits'>, 'start'>;
}

/** Reads the state of a request, now or once it is final, and a partner's requests. */
export class Statuses {
  readonly #tools: StatusTools;
  readonly #lookUps: FairReads<string, StatusRecord | undefined>;
  readonly #lists: FairReads<ListQuery, ListPage>;
  readonly #waits = new FairShares<Wait>(SHARED.waits, (wait) => wait.end(false));
  #toLookAt: Wait[] = [];
  readonly #batcher: Batcher<Wait>;

  constructor(tools: StatusTools) {
    this.#tools = tools;
    const { reader, drain, loops } = tools;
    this.#lookUps = new FairReads({
      max: SHARED.lookUps,
      together: SHARED.lookUps,
      query: (ids, leftMs) => this.#read(ids, leftMs),
    });
    this.#lists = new FairReads({
      max: SHARED.lists,
      together: 1,
      query: (queries, leftMs) => Promise.all(queries.map((query) => reader.list(query, leftMs))),
    });
    this.#batcher = newBatcher(
      1,
      () => this.#toLookAt.splice(0),
      // If it fails, the next round looks again.
      (waits) => this.#lookAt(waits).catch(() => {}),
    );
    loops.start({
      name: 'status_waits',
      everyMs: LOOK_EVERY_MS,
      failsAfterMs: WAITS_FAIL_AFTER_MS,
      run: () => this.#lookAt([...this.#waits.holders]),
    });
    drain.addEventListener('abort', () => {
      for (const wait of this.#waits.holders) wait.end(false);
    });
  }

  /** Undefined if the partner has no such request; rejects if it cannot be read in time. */
  async find(id: string, owner: Owner, gone: AbortSignal): Promise<StatusRecord | undefined> {
    const found = await this.#lookUps.read(id, owner, gone);
    return found && ownerName(found.partnerId ?? '', found) === owner[0] ? found : undefined;
  }

  /**
   * Resolves when the state is final or `ms` have passed. Ends early, with `waited` false, if `gone`
   * aborts, the process drains, or other partners need the place.
   */
  async wait(
    record: StatusRecord,
    owner: Owner,
    ms: number,
    gone: AbortSignal,
  ): Promise<{ readonly record: StatusRecord; readonly waited: boolean }> {
    if (statusOf(record) !== 'processing') return { record, waited: true };
    if (this.#tools.drain.aborted) return { record, waited: false };
    const { promise, resolve } = Promise.withResolvers<boolean>();
    const wait: Wait = { record, end: resolve };
    const timer = setTimeout(resolve, ms, true);
    gone.addEventListener('abort', () => resolve(false));
    this.#waits.hold(wait, owner);
    // The request may have ended since it was read.
    this.#lookSoon([wait]);
    const waited = await promise;
    clearTimeout(timer);
    this.#waits.remove(wait);
    return { record: wait.record, waited };
  }

  list(query: ListQuery, owner: Owner, gone: AbortSignal): Promise<ListPage> {
    return this.#lists.read(query, owner, gone);
  }

  /** Makes the waits for these requests look at once. */
  ended(requestIds: readonly string[]): void {
    const ids = new Set(requestIds);
    this.#lookSoon([...this.#waits.holders].filter(({ record }) => ids.has(record._id)));
  }

  #lookSoon(waits: readonly Wait[]): void {
    this.#toLookAt.push(...waits);
    this.#batcher.plan();
  }

  /** Makes one query for all waits. */
  async #lookAt(waits: readonly Wait[]): Promise<void> {
    if (waits.length === 0) return;
    const found = await this.#read(
      waits.map(({ record }) => record._id),
      STATUS_TIMEOUT_MS,
    );
    for (const [index, wait] of waits.entries()) {
      wait.record = found[index] ?? wait.record;
      if (statusOf(wait.record) !== 'processing') wait.end(true);
    }
  }

  async #read(
    ids: readonly string[],
    leftMs: number,
  ): Promise<readonly (StatusRecord | undefined)[]> {
    const found = await this.#tools.reader.read([...new Set(ids)], leftMs);
    const byId = new Map(found.map((record) => [record._id, record]));
    return ids.map((id) => byId.get(id));
  }
}

/** While the database answers one query, the process works on the answer of another. */
const QUERIES = 2;

interface QueuedRead<Item, Result> {
  readonly item: Item;
  readonly endsAt: number;
  resolve(result: Result): void;
  reject(error: unknown): void;
}

interface FairReadsOptions<Item, Result> {
  /** Pending reads. One more rejects the oldest read of the partner that has most. */
  readonly max: number;
  /** How many reads one query takes. */
  readonly together: number;
  /** Must end within `leftMs`, in the database too; returns the results in order. */
  readonly query: (items: readonly Item[], leftMs: number) => Promise<readonly Result[]>;
}

/** Reads in batches; each partner has its share of the pending reads. */
export class FairReads<Item, Result> {
  readonly #query: FairReadsOptions<Item, Result>['query'];
  readonly #shares: FairShares<QueuedRead<Item, Result>>;
  readonly #waiting = new Turns<QueuedRead<Item, Result>>();
  readonly #batcher: Batcher<QueuedRead<Item, Result>>;

  constructor({ max, together, query }: FairReadsOptions<Item, Result>) {
    this.#query = query;
    this.#shares = new FairShares(max, (read) => read.reject(new Error('too many reads')));
    this.#batcher = newBatcher(
      QUERIES,
      () => {
        let count = 0;
        return this.#waiting.take(() => (count += 1) <= together);
      },
      (reads) => this.#send(reads),
    );
  }

  /** Rejects if there is no result in time, or when `gone` aborts. */
  async read(item: Item, owner: Owner, gone: AbortSignal): Promise<Result> {
    const { promise, ...settle } = Promise.withResolvers<Result>();
    const endsAt = performance.now() + STATUS_TIMEOUT_MS;
    const read = { item, endsAt, ...settle };
    gone.addEventListener('abort', () => settle.reject(new Error('the client has left')));
    this.#waiting.put(owner[0], read);
    this.#shares.hold(read, owner);
    this.#batcher.plan();
    try {
      return await withDeadline(promise, STATUS_TIMEOUT_MS, 'reading for a partner');
    } finally {
      this.#waiting.remove(owner[0], read);
      this.#shares.remove(read);
    }
  }

  async #send(reads: readonly QueuedRead<Item, Result>[]): Promise<void> {
    try {
      const leftMs = Math.max(...reads.map(({ endsAt }) => endsAt)) - performance.now();
      const items = reads.map(({ item }) => item);
      const results = await this.#query(items, leftMs);
      for (const [index, read] of reads.entries()) read.resolve(results[index]!);
    } catch (error) {
      for (const read of reads) read.reject(error);
    }
  }
}
