/** The hooks of every request, before routing and after its answer. */
import { SpanKind, trace, type Span } from '@opentelemetry/api';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { isTestKey } from '../partner/api-key.ts';
import { type KeyTerms, ownerName } from '../partner/key-terms.ts';
import { FairShares } from '../fair/shares.ts';
import type { Logger } from '../platform/process/log.ts';
import {
  contextOf,
  failSpan,
  isTracing,
  startSpan,
  traceFields,
  traceparentOf,
} from '../platform/process/tracing.ts';
import type { PartnerLabels } from '../telemetry/metrics.ts';
import type { TrafficCounter } from '../traffic/traffic-counter.ts';
import { keyIn } from './authenticate.ts';
import {
  findClient,
  type ClientAddress,
  type ClientHeader,
  type ReadHop,
} from './client-address.ts';
import { Connection, headFault, type BrokenTools } from './connections.ts';
import { INGEST_PATH } from './contract.ts';
import { answerEarly, errors, type AnswerStatus } from './errors.ts';
import { SHARED } from './bounds.ts';
import { IncomingBody } from './read-body.ts';

declare module 'fastify' {
  interface FastifyRequest {
    startedAt: number;
    client: ClientAddress;
    /** As it was sent; empty without one. */
    key: string;
    partnerId: string;
    /** The id of a known key. */
    keyId: string | undefined;
    /** The terms of the key, once it is known. */
    terms: KeyTerms;
    incomingBody: IncomingBody;
    span: Span | undefined;
    traceparent: string | undefined;
  }
}

export interface HookTools extends BrokenTools {
  readonly log: Logger;
  readonly readHop: ReadHop;
  readonly clientHeader: ClientHeader;
  /** Aborts when the process drains. */
  readonly drain: AbortSignal;
  readonly partnerLabels: PartnerLabels;
  readonly traffic: Pick<TrafficCounter, 'answered'>;
}

export function addHooks(app: FastifyInstance, tools: HookTools): void {
  app.decorateRequest('startedAt', 0);
  app.decorateRequest('partnerId', '');
  app.decorateRequest('keyId', undefined);
  app.decorateRequest('terms', null as unknown as KeyTerms);
  app.decorateRequest('key', '');
  app.decorateRequest('client', null as unknown as ClientAddress);
  app.decorateRequest('incomingBody', null as unknown as IncomingBody);
  app.decorateRequest('span', undefined);
  app.decorateRequest('traceparent', undefined);

  const bodies = new FairShares<IncomingBody>(SHARED.incomingBytes, (body) => body.giveWay());
  app.addHook('onRequest', (request, reply, done) => {
    const connection = Connection.of(request.raw.socket);
    if (!mayBegin(connection, reply, tools)) return;
    const { client, doubtful } = findClient(
      request.raw.headers,
      connection.peer,
      tools.readHop,
      tools.clientHeader,
    );
    if (doubtful) tools.metrics.untrustedForwardedFor.inc();
    request.client = client;
    request.incomingBody = new IncomingBody(request.raw, bodies, client.limitKey);
    request.startedAt = tools.clock.monotonicMs();
    request.span = spanOf(request);
    request.traceparent = traceparentOf(request.span);
    request.key = keyIn(request.headers.authorization);
    reply.header('x-request-id', request.id);
    const fault = headFault(request.raw);
    if (fault === undefined) {
      done();
      return;
    }
    tools.metrics.brokenHttp.inc({ kind: fault });
    reply.header('connection', 'close');
    answerEarly(request, reply, errors.brokenRequest);
  });
  app.addHook('onSend', (request, reply, payload, done) => {
    // Decided by the prefix, so that no answer reveals whether a key is known.
    if (isTestKey(request.key)) reply.header('test-submission', 'true');
    addHelp(request, reply, tools);
    // Node reads no request behind one with `Upgrade`, so the client must know that it ends here.
    const isLast = tools.drain.aborted || request.raw.headers.upgrade !== undefined;
    if (isLast) reply.header('connection', 'close');
    done(null, payload);
  });
  // There could be 10,000 lines a second, so only the level debug has them.
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
    countTraffic(request, reply, tools);
    if (request.span !== undefined) endSpan(request.span, reply);
    if (telling) {
      const ms = Math.round(tools.clock.monotonicMs() - request.startedAt);
      tools.log.debug({ ...logFields(request), status: reply.statusCode, ms }, 'answered');
    }
    done();
  });
}

function addHelp({ url }: FastifyRequest, reply: FastifyReply, { help }: HookTools): void {
  const { statusCode: status } = reply;
  if (status >= 400 && help !== undefined)
    reply.header('link', help(url.split('?', 1)[0]!, status));
}

function countTraffic(
  request: FastifyRequest,
  reply: FastifyReply,
  { traffic, clock }: HookTools,
): void {
  const { partnerId } = request;
  const owner = partnerId === '' ? '' : ownerName(partnerId, request.terms);
  const status = reply.statusCode;
  if (request.method !== 'POST' || request.routeOptions.url !== INGEST_PATH)
    traffic.answered(owner, 'reads', status);
  else if (status !== 202) traffic.answered(owner, 'answers', status);
  else if (reply.hasHeader('idempotent-replayed')) traffic.answered(owner, 'answers', 'replayed');
  else traffic.answered(owner, 'answers', status, clock.monotonicMs() - request.startedAt);
}

function mayBegin(connection: Connection, reply: FastifyReply, tools: HookTools): boolean {
  const { socket } = connection;
  const may = connection.requestBegins();
  if (may === 'served') {
    reply.raw.once('close', () => connection.requestEnds());
    return true;
  }
  reply.hijack();
  if (may === 'too_many' && !socket.destroyed) {
    tools.metrics.brokenHttp.inc({ kind: 'too_many_pipelined' });
    socket.destroy();
  }
  return false;
}

/** Leaves out address, user agent and query, which are personal. */
function spanOf(request: FastifyRequest): Span | undefined {
  const { traceparent } = request.headers;
  if (traceparent === undefined && !isTracing()) return undefined;
  const parent = contextOf(traceparent);
  const route = request.routeOptions.url;
  if (request.is404 || route === undefined) return trace.getSpan(parent);
  return startSpan({
    name: `${request.method} ${route}`,
    kind: SpanKind.SERVER,
    parent,
    attributes: {
      'http.request.method': request.method,
      'http.route': route,
      'url.path': route,
      'url.scheme': 'http',
      'network.protocol.version': request.raw.httpVersion,
      'partner_ingest.request_id': request.id,
    },
  });
}

function endSpan(span: Span, reply: FastifyReply): void {
  const answered = reply.raw.writableFinished;
  if (answered) span.setAttribute('http.response.status_code', reply.statusCode);
  if (!answered) failSpan(span, 'aborted');
  else if (reply.statusCode >= 500) failSpan(span, String(reply.statusCode));
  span.end();
}

export function logFields({ id, traceparent }: FastifyRequest) {
  return { request_id: id, ...traceFields(traceparent) };
}
