/** Sends answers that do not wait for the request's body. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { closeAfterAnswer } from './connection.ts';
import { errors, type ErrorAnswer } from './errors.ts';
import { RETRY_AFTER_SECONDS } from './limits.ts';

export type AnswerStatus = ErrorAnswer['status'] | 200 | 202 | 429;

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
 * A body that has come or is just coming keeps the connection open; otherwise the answer goes first
 * and the connection is closed.
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

/** Only requests that may succeed later get the header. */
export function addRetryAfter(reply: FastifyReply, answer: ErrorAnswer): void {
  if (answer === errors.internal || answer === errors.statusUnavailable) {
    reply.header('retry-after', RETRY_AFTER_SECONDS);
  }
}
