/** The trace span of one request. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { readTraceparent, startSpan, type Span } from '../platform/tracing.ts';

/** Leaves out address, user agent and query, which are personal. */
export function startRequestSpan(request: FastifyRequest): Span | undefined {
  const route = request.routeOptions.url;
  if (request.is404 || route === undefined) return undefined;
  return startSpan({
    name: `${request.method} ${route}`,
    kind: 'SERVER',
    parent: incomingTraceparent(request),
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

export function endRequestSpan(span: Span, reply: FastifyReply): void {
  const answered = reply.raw.writableFinished;
  if (answered) span.set({ 'http.response.status_code': reply.statusCode });
  if (!answered) span.fail('aborted');
  else if (reply.statusCode >= 500) span.fail(String(reply.statusCode));
  span.end();
}

export function incomingTraceparent(request: FastifyRequest): string | undefined {
  return readTraceparent(request.headers['traceparent']);
}
