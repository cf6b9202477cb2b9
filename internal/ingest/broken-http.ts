/** Answers what is no valid HTTP, and connections whose bytes never became a request. */
import { STATUS_CODES, type IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { Clock } from '../platform/clock.ts';
import { newId } from '../platform/ids.ts';
import type { IngestMetrics } from '../telemetry/metrics.ts';
import { Connection } from './connection.ts';
import { errors, type ErrorAnswer } from './errors.ts';
import { MAX_HEADERS } from './limits.ts';

const BROKEN_ANSWER_MS = 1_000;

export interface BrokenTools {
  readonly clock: Clock;
  readonly metrics: IngestMetrics;
}

export type BrokenKind = Parameters<IngestMetrics['brokenHttp']['inc']>[0]['kind'];

export function answerBroken(
  error: NodeJS.ErrnoException,
  socket: Socket,
  tools: BrokenTools,
): void {
  const connection = Connection.of(socket);
  const code = error.code ?? '';
  const kind = brokenKinds[code] ?? (code.startsWith('HPE_') ? 'not_http' : 'connection');
  // Clients and proxies keep such connections ready, and would take an answer for that of their
  // next request.
  if (kind === 'too_slow' && !connection.hasBegun) {
    socket.destroy();
    return;
  }
  if (!connection.isClosing) tools.metrics.brokenHttp.inc({ kind });
  // Inside a body, the request's handler records the break and answers.
  const answering = connection.breakOff();
  if (kind === 'connection' || (!answering && connection.isClosing) || !socket.writable) {
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
  if (Connection.of(socket).breakOff()) return;
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

const brokenKinds: Readonly<Record<string, BrokenKind>> = {
  ERR_HTTP_REQUEST_TIMEOUT: 'too_slow',
  HPE_HEADER_OVERFLOW: 'headers_too_large',
  HPE_CHUNK_EXTENSIONS_OVERFLOW: 'chunk_extensions_too_large',
};

/** A name, address or nothing, with optional port (RFC 9112 §3.2). */
const HOST = /^(?:\[[\da-f:.]+\]|[\w.~!$&'()*+,;=%-]*)(?::\d*)?$/i;
const HOST_LENGTH = 4;

/** Finds what RFC 9112 forbids in a head but Node's parser accepts. */
export function headFault({
  rawHeaders,
  httpVersion,
  headers,
}: IncomingMessage): BrokenKind | undefined {
  // Node drops headers beyond this bound.
  if (rawHeaders.length >= 2 * MAX_HEADERS) return 'headers_too_large';
  if (httpVersion !== '1.1' && httpVersion !== '1.0') return 'bad_version';
  const { host, 'transfer-encoding': coding } = headers;
  if (host === undefined) {
    if (httpVersion === '1.1') return 'no_host';
  } else if (!HOST.test(host) || hostLines(rawHeaders) > 1) return 'bad_host';
  // Two readers could disagree on where the request ends.
  const isChunked = coding?.trim().toLowerCase() === 'chunked';
  if (coding !== undefined && (httpVersion === '1.0' || !isChunked)) return 'bad_transfer_encoding';
  return undefined;
}

/** Node keeps only the first Host header. */
function hostLines(rawHeaders: readonly string[]): number {
  let lines = 0;
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = rawHeaders[index];
    if (name?.length === HOST_LENGTH && name.toLowerCase() === 'host') lines += 1;
  }
  return lines;
}
