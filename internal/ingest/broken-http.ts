/** Answers connections whose bytes never became a Fastify request. */
import { STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import type { Clock } from '../platform/clock.ts';
import { newId } from '../platform/ids.ts';
import type { IngestMetrics } from '../telemetry/metrics.ts';
import { breakOff, hasBegun, isClosing } from './connection.ts';
import { errors, type ErrorAnswer } from './errors.ts';
import { BROKEN_ANSWER_MS } from './limits.ts';

export interface BrokenTools {
  readonly clock: Clock;
  readonly metrics: Pick<IngestMetrics, 'requests' | 'brokenHttp'>;
}

type Kind = Parameters<IngestMetrics['brokenHttp']['inc']>[0]['kind'];

export function answerBroken(
  error: NodeJS.ErrnoException,
  socket: Socket,
  tools: BrokenTools,
): void {
  const code = error.code ?? '';
  const kind = brokenKinds[code] ?? (code.startsWith('HPE_') ? 'not_http' : 'connection');
  // Clients and proxies keep such connections ready, and would take an answer for that of their
  // next request.
  if (kind === 'too_slow' && !hasBegun(socket)) {
    socket.destroy();
    return;
  }
  if (!isClosing(socket)) tools.metrics.brokenHttp.inc({ kind });
  // Inside a body, the request's handler records the break and answers.
  const answering = breakOff(socket);
  if (kind === 'connection' || (!answering && isClosing(socket)) || !socket.writable) {
    socket.destroy();
    return;
  }
  if (answering) return;
  const answer = kind === 'too_slow' ? errors.headTooSlow : errors.brokenRequest;
  answerByHand(socket, answer, [], tools);
}

/** Node stops parsing HTTP at a CONNECT. */
export function answerConnect(socket: Socket, tools: BrokenTools): void {
  // Earlier requests still get their answers.
  if (breakOff(socket)) return;
  answerByHand(socket, errors.methodNotAllowed, ['Allow: POST'], tools);
}

function answerByHand(
  socket: Socket,
  { status, error }: ErrorAnswer,
  headers: readonly string[],
  tools: BrokenTools,
): void {
  const body = JSON.stringify({ error });
  const now = tools.clock.now();
  const lines = [
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
    `Date: ${now.toUTCString()}`,
    'Content-Type: application/json; charset=utf-8',
    `Content-Length: ${Buffer.byteLength(body)}`,
    `X-Request-Id: ${newId('req', now)}`,
    'Connection: close',
    ...headers,
  ];
  socket.end(`${lines.join('\r\n')}\r\n\r\n${body}`);
  tools.metrics.requests.inc({ status: `${status}` });
  setTimeout(() => socket.destroy(), BROKEN_ANSWER_MS).unref();
}

const brokenKinds: Readonly<Record<string, Kind>> = {
  ERR_HTTP_REQUEST_TIMEOUT: 'too_slow',
  HPE_HEADER_OVERFLOW: 'headers_too_large',
  HPE_CHUNK_EXTENSIONS_OVERFLOW: 'chunk_extensions_too_large',
};
