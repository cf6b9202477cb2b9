/** Sends answers that do not wait for the body. */
import type { FastifyReply, FastifyRequest } from 'fastify';
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

/** The connection stays open only if the body arrives within `EARLY_GRACE_MS`. */
export function sendEarly(
  request: FastifyRequest,
  reply: FastifyReply,
  status: AnswerStatus,
  body: object | string,
): void {
  const { incomingBody } = request;
  incomingBody.drop();
  incomingBody.whenNearlyCome((come) => {
    if (!come) closeAfterAnswer(request, reply);
    reply.code(status).send(body);
  });
}

/** Makes this answer the last of its connection. */
export function closeAfterAnswer({ incomingBody }: FastifyRequest, reply: FastifyReply): void {
  reply.header('connection', 'close');
  incomingBody.closeAfterAnswer();
}

/** Only these errors are temporary. */
function addRetryAfter(reply: FastifyReply, answer: ErrorAnswer): void {
  if (answer === errors.internal || answer === errors.statusUnavailable) {
    reply.header('retry-after', RETRY_AFTER_SECONDS);
  }
}

export function answerNotAccepted(reply: FastifyReply): void {
  addRetryAfter(reply, errors.internal);
  reply.code(errors.internal.status).send({ error: errors.internal.error });
}
