/** How an answer leaves that does not come from a handler which has read its body. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { closeAfterAnswer } from './connection.ts';
import { errors, type ErrorAnswer } from './errors.ts';
import { RETRY_AFTER_SECONDS } from './limits.ts';

/** Every status the partner port answers with. */
export type AnswerStatus = ErrorAnswer['status'] | 200 | 202 | 429;

/** Answers with an error before the body is read. */
export function answerEarly(
  request: FastifyRequest,
  reply: FastifyReply,
  answer: ErrorAnswer,
): void {
  if (answer.status === 401) reply.header('www-authenticate', 'Bearer');
  addRetryAfter(reply, answer);
  sendEarly(request, reply, answer.status, { error: answer.error });
}

/**
 * Answers a request whose body nobody wants. A body that has come, or is just coming, leaves the
 * connection open for the next request; else the answer does not wait for it, and the connection is
 * closed after it.
 */
export function sendEarly(
  request: FastifyRequest,
  reply: FastifyReply,
  status: AnswerStatus,
  body: object,
): void {
  const { incomingBody } = request;
  incomingBody.drop();
  incomingBody.whenNearlyCome((come) => {
    if (!come) {
      reply.header('connection', 'close');
      closeAfterAnswer(request.raw.socket, incomingBody);
    }
    reply.code(status).send(body);
  });
}

/** Says when to ask again, where the same request may succeed later. */
export function addRetryAfter(reply: FastifyReply, answer: ErrorAnswer): void {
  if (answer === errors.internal || answer === errors.statusUnavailable) {
    reply.header('retry-after', RETRY_AFTER_SECONDS);
  }
}
