/** What happens to a look-up: authenticate, read, answer. It leaves no record. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { z } from 'zod';
import { reasonsForPartner } from '../application/reasons.ts';
import type { Logger } from '../platform/log.ts';
import type { StatusRecord } from '../submission/status-reader.ts';
import { cardOf } from '../submission/states.ts';
import { answerEarly, sendEarly } from './answer.ts';
import { identify, type IdentifyTools } from './authenticate.ts';
import { requestId, statusMessages, type Status, type statusBody } from './contract.ts';
import { errors } from './errors.ts';
import type { LookUps } from './look-ups.ts';

export interface LookUpTools extends IdentifyTools {
  readonly log: Logger;
  readonly lookUps: LookUps;
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

export async function lookUpStatus(
  request: FastifyRequest,
  reply: FastifyReply,
  tools: LookUpTools,
): Promise<FastifyReply> {
  reply.header('cache-control', 'no-store');
  const asked = requestId.safeParse((request.params as { request_id: string }).request_id);
  let record: StatusRecord | undefined;
  try {
    if (asked.success)
      record = await tools.lookUps.find(asked.data, [request.partnerId, request.client.limitKey]);
  } catch (error) {
    tools.log.debug({ err: error, request_id: request.id }, 'a status could not be read');
    answerEarly(request, reply, errors.statusUnavailable);
    return reply;
  }
  if (record === undefined) answerEarly(request, reply, errors.requestUnknown);
  else sendEarly(request, reply, 200, bodyOf(record));
  return reply;
}

function bodyOf(record: StatusRecord): z.infer<typeof statusBody> {
  // A newer version may have written an unknown state.
  const state: Status = cardOf(record.state)?.status ?? 'processing';
  return {
    message: statusMessages[state],
    data: {
      request_id: record._id,
      state,
      received_at: record.receivedAt.toISOString(),
      updated_at: record.stateAt.toISOString(),
      reasons: reasonsForPartner(record.reasons ?? []),
    },
  };
}
