/** The partner port: the contract's operations, and an answer in its shape for everything else. */
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import rateLimit from '@fastify/rate-limit';
import { fastify, type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify';
import { newId } from '../platform/ids.ts';
import type { Logger } from '../platform/log.ts';
import { traceFields, tracing, type Span } from '../platform/tracing.ts';
import { BodyRoom } from './body-room.ts';
import { answerBroken, type BrokenTools } from './broken-http.ts';
import { clientAddress, type ClientAddress } from './client-address.ts';
import { connectionEnds, isAnswering, requestBegins, requestEnds } from './connection.ts';
import { INGEST_PATH, STATUS_PATH } from './contract.ts';
import { errors, tooManyRequests, type ErrorAnswer } from './errors.ts';
import {
  CONNECTIONS_CHECK_MS,
  HEADERS_TIMEOUT_MS,
  MAX_CONNECTIONS,
  MAX_HEADER_BYTES,
  MAX_HEADERS,
  MAX_INCOMING_BYTES,
  REQUEST_TIMEOUT_MS,
} from './limits.ts';
import { authenticateLookUp, lookUpStatus, type LookUpTools } from './look-up-status.ts';
import type { SharedLimiterStore } from './rate-limit.ts';
import { IncomingBody } from './read-body.ts';
import { endRequestSpan, startRequestSpan, traceparentOf } from './request-span.ts';
import { answerEarly, authenticateRequest, submitApplication, type SubmitTools } from './submit-application.ts';

declare module 'fastify' {
  interface FastifyRequest {
    startedAt: number;
    client: ClientAddress;
    contentType: string | undefined;
    partnerId: string;
    incomingBody: IncomingBody;
    span: Span | undefined;
  }
}

export interface ServerTools extends SubmitTools {
  readonly log: Logger;
  /** Reads a status for its partner; undefined where look-ups are switched off. */
  readonly readStatus: LookUpTools['readStatus'] | undefined;
  readonly limiter: SharedLimiterStore;
  overLimit(address: string, requestId: string): void;
  /** Whether the process is draining: answers then say `Connection: close`. */
  draining(): boolean;
  readonly metrics: SubmitTools['metrics'] &
    BrokenTools['metrics'] & { readonly untrustedForwardedFor: { inc(): void } };
}

export interface ServerSettings {
  readonly keepAliveSeconds: number;
  readonly trustedProxies: readonly string[];
  readonly rateLimitMax: number;
  readonly rateLimitWindowSeconds: number;
}

/** Builds the server without listening. Everything it answers is JSON and carries `X-Request-Id`. */
export async function createIngestServer(settings: ServerSettings, tools: ServerTools): Promise<FastifyInstance> {
  const app = fastify({
    logger: false,
    trustProxy: settings.trustedProxies.length === 0 ? false : [...settings.trustedProxies],
    genReqId: () => newId('req'),
    requestIdHeader: false,
    return503OnClosing: false,
    forceCloseConnections: 'idle',
    exposeHeadRoutes: false,
    requestTimeout: REQUEST_TIMEOUT_MS,
    keepAliveTimeout: settings.keepAliveSeconds * 1_000,
    http: {
      headersTimeout: HEADERS_TIMEOUT_MS,
      connectionsCheckingInterval: CONNECTIONS_CHECK_MS,
      maxHeaderSize: MAX_HEADER_BYTES,
      // Node would answer a missing Host itself, without a body; the hook below does.
      requireHostHeader: false,
    },
    rewriteUrl: routedUrl,
    // An id of any length is one that is unknown, not a path that does not exist.
    routerOptions: { maxParamLength: MAX_HEADER_BYTES },
    clientErrorHandler: (error, socket) => answerBroken(error, socket, tools),
  });
  app.server.maxConnections = MAX_CONNECTIONS;
  app.server.maxHeadersCount = MAX_HEADERS;
  app.server.on('drop', () => tools.metrics.brokenHttp.inc({ kind: 'too_many_connections' }));

  // Node takes a connection without a whole request head for busy, and stops timing it once it closes: it would hold up
  // a drain to its deadline.
  const connections = new Set<Socket>();
  app.server.on('connection', (socket: Socket) => {
    connections.add(socket);
    socket.once('close', () => {
      connections.delete(socket);
      connectionEnds(socket);
    });
  });
  app.addHook('preClose', (done) => {
    for (const socket of connections) if (!isAnswering(socket)) socket.destroy();
    done();
  });

  // Node would answer an unknown Expect with a bare 417; RFC 9110 §10.1.1 lets us ignore it.
  app.server.on('checkExpectation', (request, response) => app.server.emit('request', request, response));

  // The body decides, whatever its type is called: the bytes are read by the handler, past Fastify's parsers.
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', (_request, _payload, done) => done(null));

  app.decorateRequest('startedAt', 0);
  app.decorateRequest('partnerId', '');
  app.decorateRequest('contentType', undefined);
  app.decorateRequest('client', null as unknown as ClientAddress);
  app.decorateRequest('incomingBody', null as unknown as IncomingBody);
  app.decorateRequest('span', undefined);

  const room = new BodyRoom(MAX_INCOMING_BYTES);
  app.addHook('onRequest', (request, reply, done) => {
    const { socket } = request.raw;
    if (!requestBegins(socket)) {
      if (!socket.destroyed) tools.metrics.brokenHttp.inc({ kind: 'too_many_pipelined' });
      reply.hijack();
      socket.destroy();
      return;
    }
    reply.raw.once('close', () => requestEnds(socket));
    request.incomingBody = new IncomingBody(request.raw, room);
    request.startedAt = tools.clock.monotonicMs();
    if (tracing()) request.span = startRequestSpan(request);
    request.contentType = request.raw.headers['content-type'];
    // Fastify would judge a malformed Content-Type itself, with an answer of its own.
    request.raw.headers['content-type'] = 'application/octet-stream';
    request.client = clientAddress(request);
    reply.header('x-request-id', request.id);
    if (request.headers['x-forwarded-for'] !== undefined && (request.ips?.length ?? 1) === 1) {
      tools.metrics.untrustedForwardedFor.inc();
    }
    const fault = headFault(request.raw);
    if (fault !== undefined) {
      tools.metrics.brokenHttp.inc({ kind: fault });
      reply.header('connection', 'close');
      void answerEarly(request, reply, errors.brokenRequest.status, { error: errors.brokenRequest.error });
      return;
    }
    done();
  });
  app.addHook('onSend', (_request, reply, payload, done) => {
    if (tools.draining()) reply.header('connection', 'close');
    done(null, payload);
  });
  // A line for each request would be 10,000 a second: they are for whoever asks for them.
  const telling = tools.log.isLevelEnabled('debug');
  app.addHook('onResponse', (request, reply, done) => {
    tools.metrics.requests.inc({ status: String(reply.statusCode) });
    if (request.span !== undefined) endRequestSpan(request.span, reply);
    if (telling) {
      const ms = Math.round(tools.clock.monotonicMs() - request.startedAt);
      tools.log.debug({ ...logFields(request), status: reply.statusCode, ms }, 'answered');
    }
    done();
  });

  await app.register(rateLimit, {
    global: false,
    // The plugin makes the store itself, from a class.
    store: function store() {
      return tools.limiter;
    } as unknown as NonNullable<rateLimit.RateLimitPluginOptions['store']>,
  });

  const limit = {
    max: settings.rateLimitMax,
    timeWindow: settings.rateLimitWindowSeconds * 1_000,
    keyGenerator: (request) => request.client.limitKey,
    errorResponseBuilder: (_request, context) => new OverLimit(settings, context.ttl),
  } satisfies rateLimit.RateLimitOptions;
  app.route({
    method: 'POST',
    url: INGEST_PATH,
    config: {
      rateLimit: { ...limit, onExceeded: (request) => tools.overLimit(request.client.limitKey, request.id) },
    },
    // One stage after the limiter, which the plugin appends to onRequest: so guessing keys is limited, too.
    preParsing: async (request, reply) => authenticateRequest(request, reply, tools),
    handler: async (request, reply) => {
      await submitApplication(request, reply, tools);
      return reply;
    },
  });

  const { readStatus } = tools;
  if (readStatus !== undefined) {
    const lookUpTools: LookUpTools = { log: tools.log, lookupKey: tools.lookupKey, readStatus };
    app.route({
      method: ['GET', 'HEAD'],
      url: STATUS_PATH,
      // Counted apart: look-ups must not use up the submissions the contract allows.
      config: { rateLimit: { ...limit, groupId: ' status' } },
      preParsing: async (request, reply) => authenticateLookUp(request, reply, lookUpTools),
      handler: async (request, reply) => {
        await lookUpStatus(request, reply, lookUpTools);
        return reply;
      },
    });
  }

  app.setNotFoundHandler(async (request, reply) => {
    await notFound(request, reply, readStatus !== undefined);
    return reply;
  });
  app.setErrorHandler(async (error, request, reply) => {
    if (error instanceof OverLimit) {
      reply.header('retry-after', error.retrySeconds);
      await answerEarly(request, reply, 429, { error: error.message });
      return reply;
    }
    tools.log.error({ ...logFields(request), err: error }, 'request failed');
    await answerEarly(request, reply, errors.internal.status, { error: errors.internal.error });
    return reply;
  });
  return app;
}

/** What Node leaves for us to find wrong with a head. Where there are too many headers, it has dropped those beyond. */
function headFault({ rawHeaders, httpVersion, headers }: IncomingMessage): string | undefined {
  if (rawHeaders.length >= 2 * MAX_HEADERS) return 'headers_too_large';
  return httpVersion === '1.1' && headers.host === undefined ? 'no_host' : undefined;
}

function logFields(request: FastifyRequest) {
  return { request_id: request.id, ...traceFields(traceparentOf(request)) };
}

class OverLimit extends Error {
  override readonly name = 'OverLimit';
  readonly retrySeconds: number;
  constructor(settings: ServerSettings, ttlMs: number) {
    // At least one second: a window that is just ending must not invite an immediate retry.
    const retrySeconds = Math.min(settings.rateLimitWindowSeconds, Math.max(1, Math.ceil(ttlMs / 1_000)));
    super(tooManyRequests(settings.rateLimitMax, settings.rateLimitWindowSeconds, retrySeconds));
    this.retrySeconds = retrySeconds;
  }
}

/**
 * What the router is to look for: the absolute form (RFC 9112 §3.2.2) without its origin. A path that cannot be decoded
 * names nothing that exists; Fastify would answer it past all hooks.
 */
function routedUrl(request: IncomingMessage): string {
  const url = (request.url ?? '/').replace(/^https?:\/\/[^/?#]*/i, '');
  try {
    decodeURI(url.split('?', 1)[0] ?? '');
    return url;
  } catch {
    return '/';
  }
}

const statusPath = new RegExp(`^${INGEST_PATH}/[^/]+$`);

/** 405 for another method on an operation's path, 404 for everything else. */
async function notFound(request: FastifyRequest, reply: FastifyReply, lookUps: boolean): Promise<void> {
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
  await answerEarly(request, reply, answer.status, { error: answer.error });
}
