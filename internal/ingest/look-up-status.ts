/** What happens to a look-up and a list: authenticate, read, perhaps wait, answer. No record is left. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { reasonsForPartner } from '../application/reasons.ts';
import { ownerName } from '../partner/mode.ts';
import { defined } from '../platform/process/defined.ts';
import type { Owner } from '../fair/shares.ts';
import type { Logger } from '../platform/process/log.ts';
import type { StatusRecord } from '../submission/status-reader.ts';
import { cards, states } from '../submission/states.ts';
import { identify, type IdentifyTools } from './authenticate.ts';
import {
  listQuery,
  listQueryFault,
  requestId,
  statusMessages,
  testMessages,
  timeOf,
} from './contract.ts';
import { answerEarly, errors, listQueryInvalid, sendEarly } from './errors.ts';
import { MAX_WAIT_SECONDS } from './bounds.ts';
import { statusOf, type Statuses } from './statuses.ts';

const LISTED = 'Your requests, newest first';

export interface LookUpTools extends IdentifyTools {
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
  const authentication = identify(request, tools);
  if (!authentication.ok) answerEarly(request, reply, authentication.answer);
  return authentication.ok;
}

/** Answers, or rejects where the database does not. */
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

/** RFC 7240: only the first `wait` counts, and what is malformed is ignored. */
function secondsToWait(prefer: string | string[] | undefined): number | undefined {
  // A comma within quotes separates nothing.
  const preferences = String(prefer ?? '').match(/(?:[^",]|"(?:[^"\\]|\\.)*"?)+/g) ?? [];
  const first = preferences.find((preference) => /^\s*wait\s*(?:[=;]|$)/i.test(preference));
  const [, plain, inQuotes] = /^\s*wait\s*=\s*(?:(\d+)|"(\d+)")\s*(?:;|$)/i.exec(first ?? '') ?? [];
  const wait = plain ?? inQuotes;
  return wait === undefined ? undefined : Math.min(Number(wait), MAX_WAIT_SECONDS);
}

/** A partner's own requests, newest first: what it lost, it can ask for. */
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
