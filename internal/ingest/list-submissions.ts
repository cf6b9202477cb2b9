/** A partner's own requests, newest first: what it lost, it can ask for. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { defined } from '../platform/defined.ts';
import { cards, states } from '../submission/states.ts';
import { answerEarly, sendEarly } from './answer.ts';
import { listQuery } from './contract.ts';
import { errors } from './errors.ts';
import { answerRead, dataOf, type LookUpTools } from './look-up-status.ts';

const LISTED = 'Your requests, newest first';

export function listSubmissions(
  request: FastifyRequest,
  reply: FastifyReply,
  tools: LookUpTools,
): Promise<FastifyReply> {
  return answerRead(request, reply, tools, async (owner) => {
    const asked = listQuery.safeParse(request.query);
    if (!asked.success) {
      answerEarly(request, reply, errors.listQueryInvalid);
      return;
    }
    const { since, until, state, cursor, idempotency_key: idempotencyKey } = asked.data;
    const timeOf = (text: string | undefined) => (text ? new Date(text) : undefined);
    const { records, next } = await tools.statuses.list(
      {
        partnerId: request.partnerId,
        test: request.terms.test,
        since: timeOf(since),
        until: timeOf(until),
        states: state ? states.filter((each) => cards[each].status === state) : undefined,
        before: cursor || undefined,
        idempotencyKey: idempotencyKey || undefined,
      },
      owner,
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
  });
}
