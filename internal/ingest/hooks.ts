/** The hooks of every request, before routing and after its answer. */
import type { IncomingMessage } from 'node:http';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { KeyTerms } from '../partner/key-terms.ts';
import type { Clock } from '../platform/clock.ts';
import type { Logger } from '../platform/log.ts';
import { traceFields, tracing, type Span } from '../platform/tracing.ts';
import type { IngestMetrics } from '../telemetry/metrics.ts';
import type { PartnerLabels } from '../telemetry/partner-labels.ts';
import { answerEarly, type AnswerStatus } from './answer.ts';
import type { BrokenTools } from './broken-http.ts';
import type { ClientAddress, FindClient } from './client-address.ts';
import { requestBegins, requestEnds } from './connection.ts';
import { errors } from './errors.ts';
import { headFault } from './head-fault.ts';
import { IncomingBody } from './read-body.ts';
import { endRequestSpan, startRequestSpan, traceparentOf } from './request-span.ts';
import type { Shares } from './shares.ts';

declare module 'fastify' {
  interface FastifyRequest {
    startedAt: number;
    client: ClientAddress;
    contentType: string | undefined;
    partnerId: string;
    /** Of its key, once that is known. */
    terms: KeyTerms;
    incomingBody: IncomingBody;
    span: Span | undefined;
  }
}

export interface HookTools extends BrokenTools {
  readonly clock: Clock;
  readonly log: Logger;
  readonly findClient: FindClient;
  readonly shares: Shares;
  /** Aborts when the process drains. */
  readonly drain: AbortSignal;
  readonly metrics: BrokenTools['metrics'] &
    Pick<IngestMetrics, 'untrustedForwardedFor' | 'partnerRequests' | 'testRequests'>;
  readonly partnerLabels: PartnerLabels;
}

export function addHooks(app: FastifyInstance, tools: HookTools): void {
  app.decorateRequest('startedAt', 0);
  app.decorateRequest('partnerId', '');
  app.decorateRequest('terms', null as unknown as KeyTerms);
  app.decorateRequest('contentType', undefined);
  app.decorateRequest('client', null as unknown as ClientAddress);
  app.decorateRequest('incomingBody', null as unknown as IncomingBody);
  app.decorateRequest('span', undefined);

  app.addHook('onRequest', (request, reply, done) => {
    if (!mayBegin(request.raw, reply, tools)) return;
    begin(request, reply, tools);
    const fault = headFault(request.raw);
    if (fault === undefined) {
      done();
      return;
    }
    tools.metrics.brokenHttp.inc({ kind: fault });
    reply.header('connection', 'close');
    answerEarly(request, reply, errors.brokenRequest);
  });
  app.addHook('onSend', (_request, reply, payload, done) => {
    if (tools.drain.aborted) reply.header('connection', 'close');
    done(null, payload);
  });
  // Log lines could reach 10,000 a second.
  const telling = tools.log.isLevelEnabled('debug');
  app.addHook('onResponse', (request, reply, done) => {
    const status = `${reply.statusCode as AnswerStatus}` as const;
    const { partnerId } = request;
    const test = partnerId !== '' && request.terms.test;
    tools.metrics[test ? 'testRequests' : 'requests'].inc({ status });
    if (partnerId !== '' && !test) {
      tools.metrics.partnerRequests.inc({
        partner: tools.partnerLabels.of(partnerId),
        status,
      });
    }
    if (request.span !== undefined) endRequestSpan(request.span, reply);
    if (telling) {
      const ms = Math.round(tools.clock.monotonicMs() - request.startedAt);
      tools.log.debug({ ...logFields(request), status: reply.statusCode, ms }, 'answered');
    }
    done();
  });
}

function mayBegin({ socket }: IncomingMessage, reply: FastifyReply, tools: HookTools): boolean {
  const may = requestBegins(socket);
  if (may === 'served') {
    reply.raw.once('close', () => requestEnds(socket));
    return true;
  }
  reply.hijack();
  if (may === 'too_many' && !socket.destroyed) {
    tools.metrics.brokenHttp.inc({ kind: 'too_many_pipelined' });
    socket.destroy();
  }
  return false;
}

function begin(request: FastifyRequest, reply: FastifyReply, tools: HookTools): void {
  const { client, doubtful } = tools.findClient(request.raw);
  request.client = client;
  const { incomingBytes } = tools.shares;
  request.incomingBody = new IncomingBody(request.raw, incomingBytes, client.limitKey);
  request.startedAt = tools.clock.monotonicMs();
  if (tracing()) request.span = startRequestSpan(request);
  request.contentType = request.raw.headers['content-type'];
  // Fastify would answer a malformed Content-Type by itself.
  request.raw.headers['content-type'] = 'application/octet-stream';
  if (doubtful) tools.metrics.untrustedForwardedFor.inc();
  reply.header('x-request-id', request.id);
}

export function logFields(request: FastifyRequest) {
  return { request_id: request.id, ...traceFields(traceparentOf(request)) };
}
