/** Routes requests to operations and answers all others. */
import type { IncomingMessage } from 'node:http';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Logger } from '../platform/log.ts';
import { answerEarly, sendEarly } from './answer.ts';
import type { IdentifyTools } from './authenticate.ts';
import { INGEST_PATH, STATUS_PATH } from './contract.ts';
import { errors, type ErrorAnswer } from './errors.ts';
import { logFields } from './hooks.ts';
import {
  OverLimit,
  operationLimits,
  partnerLimits,
  registerLimiter,
  type LimitSettings,
  type LimitTools,
} from './limit-policy.ts';
import { authenticateLookUp, lookUpStatus, type LookUpTools } from './look-up-status.ts';
import { LookUps, type ReadStatuses } from './look-ups.ts';
import { authenticateRequest, submitApplication, type SubmitTools } from './submit-application.ts';

export interface RouteTools
  extends Omit<SubmitTools, 'admitBody' | 'giveBackBody'>, IdentifyTools, LimitTools {
  readonly log: Logger;
  readonly readStatuses: ReadStatuses | undefined;
}

export async function addRoutes(
  app: FastifyInstance,
  settings: LimitSettings,
  tools: RouteTools,
): Promise<void> {
  await registerLimiter(app, tools);
  const limits = operationLimits(settings, tools);
  const { admitRequest, ...ofBodies } = partnerLimits(tools);
  const submitTools = { ...tools, ...ofBodies };
  // The plugin appends the limiter to onRequest; the key is checked later, so that guessing is
  // limited too.
  app.route({
    method: 'POST',
    url: INGEST_PATH,
    config: { rateLimit: limits.submitApplication },
    preParsing: (request, reply, _payload, proceed) => {
      if (!authenticateRequest(request, reply, submitTools)) return;
      const admission = admitRequest(request);
      if (admission === undefined) proceed(null);
      else admission.then(() => proceed(null), proceed);
    },
    handler: (request, reply) => submitApplication(request, reply, submitTools),
  });

  const { readStatuses } = tools;
  if (readStatuses !== undefined) {
    const lookUpTools: LookUpTools = { ...tools, lookUps: new LookUps(readStatuses) };
    app.route({
      method: ['GET', 'HEAD'],
      url: STATUS_PATH,
      config: { rateLimit: limits.lookUpStatus },
      preParsing: (request, reply, _payload, done) => {
        if (authenticateLookUp(request, reply, lookUpTools)) done(null);
      },
      handler: (request, reply) => lookUpStatus(request, reply, lookUpTools),
    });
  }

  app.setNotFoundHandler((request, reply) => notFound(request, reply, readStatuses !== undefined));
  app.setErrorHandler((error, request, reply) => {
    if (error instanceof OverLimit) {
      reply.header('retry-after', error.retrySeconds);
      sendEarly(request, reply, 429, { error: error.message });
      return;
    }
    tools.log.error({ ...logFields(request), err: error }, 'request failed');
    answerEarly(request, reply, errors.internal);
  });
}

/**
 * Removes the origin of an absolute URL (RFC 9112 §3.2.2). Fastify would answer an undecodable path
 * without hooks.
 */
export function routedUrl(request: IncomingMessage): string {
  if (request.url === INGEST_PATH) return INGEST_PATH;
  const url = (request.url ?? '/').replace(/^https?:\/\/[^/?#]*/i, '');
  try {
    decodeURI(url.split('?', 1)[0] ?? '');
    return url;
  } catch {
    return '/';
  }
}

const statusPath = new RegExp(`^${INGEST_PATH}/[^/]+$`);

function notFound(request: FastifyRequest, reply: FastifyReply, lookUps: boolean): void {
  const path = request.url.split('?', 1)[0] ?? '';
  const isGet = request.method === 'GET' || request.method === 'HEAD';
  let answer: ErrorAnswer = errors.notFound;
  if (path === INGEST_PATH) {
    answer = errors.methodNotAllowed;
    reply.header('allow', 'POST');
  } else if (lookUps && !isGet && statusPath.test(path)) {
    answer = errors.statusMethodNotAllowed;
    reply.header('allow', 'GET, HEAD');
  }
  answerEarly(request, reply, answer);
}
