/** Look-ups and lists: authenticate, read, perhaps wait, answer; nothing is recorded. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { hintsOn } from '../application/parse-application.ts';
import { reasonsForPartner } from '../application/reasons.ts';
import type { Owner } from '../fair/shares.ts';
import { endsSoon, ownerName } from '../partner/key-terms.ts';
import { newBatcher, type Batcher } from '../platform/stores/mongo-joined.ts';
import { DAY_MS, later } from '../platform/process/clock.ts';
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
import { sumOf, type TrafficReader } from '../traffic/traffic-reader.ts';
import { authenticate, type KeyTools } from './authenticate.ts';
import { MAX_WAIT_SECONDS, SHARED, STATUS_TIMEOUT_MS } from './bounds.ts';
import {
  listQuery,
  outcomesQuery,
  queryFault,
  requestId,
  type Status,
  statusMessages,
  testMessages,
  timeOf,
  valueFault,
} from './contract.ts';
import { answerEarly, errors, listQueryInvalid, sendEarly } from './errors.ts';
import { FairReads } from './fair-reads.ts';
import type { Limits } from './limit-policy.ts';
import { cursorAt, cursorText, REACH_MS, readCursor } from './outcome-cursor.ts';
import type { Outcomes } from './outcomes.ts';
import { preferenceIn } from './prefer.ts';
import { WaitingClients } from './waiting-clients.ts';

const LISTED = 'Your requests, newest first';
const OUTCOMES = 'Your outcomes, oldest first';

export interface LookUpTools extends KeyTools {
  readonly log: Logger;
  readonly statuses: Statuses;
  readonly outcomes: Outcomes;
  readonly counts: Pick<TrafficReader, 'series'>;
  readonly limits: Pick<Limits, 'ofAddress'>;
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
  else if (endsSoon(request.terms, tools.clock.now()))
    reply.header('key-not-after', request.terms.notAfter?.toISOString());
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
  const seconds = secondsToWait(preferenceIn(request.headers['prefer'], 'wait'));
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

function secondsToWait(wait = ''): number | undefined {
  return /^\d+$/.test(wait) ? Math.min(Number(wait), MAX_WAIT_SECONDS) : undefined;
}

/** A partner's own requests, newest first, to find lost answers. */
export const listSubmissions: Read = async (request, reply, tools, owner, gone) => {
  const fault = queryFault(listQuery, request.query);
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
      ...(cursor || idempotencyKey ? {} : await standingOf(request, tools, owner)),
    },
  });
};

const COUNTS_WITHIN_MS = 500;

/** What may be asked, and how the last day was answered. The list is worth more than this. */
async function standingOf(
  { terms }: FastifyRequest,
  { counts, limits: { ofAddress }, clock }: LookUpTools,
  [owner]: Owner,
) {
  const until = clock.now();
  const asked = { unit: 'hour', since: later(until, -DAY_MS), until } as const;
  const parts = await withDeadline(counts.series(owner, asked), COUNTS_WITHIN_MS, 'counts').catch(
    () => undefined,
  );
  const limits = {
    of_address: Number(ofAddress.amount),
    of_address_seconds: ofAddress.windowSeconds,
    ...defined({ of_partner_a_minute: terms.maxPerMinute }),
  };
  const answers = parts && sumOf(parts.map((part) => part.counts)).answers;
  return { limits, ...(parts && { last_day: answers ?? {} }) };
}

/** A partner's own requests as they end, and as their ends change. */
export const followOutcomes: Read = async (request, reply, tools, owner, gone) => {
  const { partnerId, terms } = request;
  const { test } = terms;
  const fault = queryFault(outcomesQuery, request.query);
  const { since, cursor: given } = fault === undefined ? outcomesQuery.parse(request.query) : {};
  // Behind a time that is still to come, such as of a wrong zone, outcomes would be missed.
  const fromMs = Math.min(since ? timeOf(since).getTime() : REACH_MS, tools.clock.now().getTime());
  const begun = cursorAt(fromMs - REACH_MS);
  const cursor = given ? readCursor(owner[0], given) : begun;
  if (fault !== undefined || cursor === undefined) {
    const error = listQueryInvalid(fault ?? valueFault('cursor', given));
    sendEarly(request, reply, 400, { error });
    return;
  }
  const whose = { partnerId, test };
  let page = await tools.outcomes.read({ whose, cursor }, owner, gone);
  const seconds = secondsToWait(preferenceIn(request.headers['prefer'], 'wait'));
  let waited = page.records.length > 0;
  if (seconds !== undefined && !waited) {
    const { cursor: reached } = page;
    const next = { whose, cursor: reached };
    waited = await tools.outcomes.wait(next, owner, seconds * 1_000, gone);
    // If it ended early or cannot be read, what was read before is the answer.
    const news = waited
      ? await tools.outcomes.read(next, owner, gone).catch(() => undefined)
      : undefined;
    waited = news !== undefined;
    page = news ?? page;
    // The key may have ended meanwhile.
    if (!authenticateLookUp(request, reply, tools)) return;
  }
  if (waited && seconds !== undefined) reply.header('preference-applied', `wait=${seconds}`);
  sendEarly(request, reply, 200, {
    message: OUTCOMES,
    data: { outcomes: page.records.map(dataOf), next_cursor: cursorText(owner[0], page.cursor) },
  });
};

function dataOf(record: StatusRecord) {
  const hints = hintsOn(record.applicant ?? {});
  return {
    request_id: record._id,
    ...defined({ test: record.test }),
    state: statusOf(record),
    received_at: record.receivedAt.toISOString(),
    updated_at: record.stateAt.toISOString(),
    reasons: reasonsForPartner(record.reasons ?? []),
    ...(hints.length === 0 ? {} : { hints }),
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
  readonly #waits: WaitingClients<Wait>;
  #toLookAt: Wait[] = [];
  readonly #batcher: Batcher<Wait>;

  constructor(tools: StatusTools) {
    this.#tools = tools;
    const { reader, drain, loops } = tools;
    this.#waits = new WaitingClients(drain);
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
      run: () => this.#lookAt(this.#waits.all),
    });
  }

  /** Undefined if the partner has no such request; rejects if it cannot be read in time. */
  async find(id: string, owner: Owner, gone: AbortSignal): Promise<StatusRecord | undefined> {
    const found = await this.#lookUps.read(id, owner, gone);
    return found && ownerName(found.partnerId ?? '', found) === owner[0] ? found : undefined;
  }

  /** Resolves when the state is final, or as `WaitingClients` says. */
  async wait(
    record: StatusRecord,
    owner: Owner,
    ms: number,
    gone: AbortSignal,
  ): Promise<{ readonly record: StatusRecord; readonly waited: boolean }> {
    if (statusOf(record) !== 'processing') return { record, waited: true };
    const wait: Wait = { record };
    const held = this.#waits.hold(wait, owner, ms, gone);
    // The request may have ended since it was read.
    this.#lookSoon([wait]);
    const waited = await held;
    return { record: wait.record, waited };
  }

  list(query: ListQuery, owner: Owner, gone: AbortSignal): Promise<ListPage> {
    return this.#lists.read(query, owner, gone);
  }

  /** Makes the waits for these requests look at once. */
  ended(requestIds: readonly string[]): void {
    const ids = new Set(requestIds);
    this.#lookSoon(this.#waits.all.filter(({ record }) => ids.has(record._id)));
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
      if (statusOf(wait.record) !== 'processing') this.#waits.end(wait, true);
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
