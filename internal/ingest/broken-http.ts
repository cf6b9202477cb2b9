/** What is no HTTP, or was too slow, too large or too much to become a request: counted, and answered where an answer can be read. */
import type { Socket } from 'node:net';
import { newId } from '../platform/ids.ts';
import { breakOff } from './connection.ts';
import { errors } from './errors.ts';
import { BROKEN_ANSWER_MS } from './limits.ts';

export interface BrokenTools {
  readonly metrics: {
    readonly requests: { inc(labels: { status: string }): void };
    readonly brokenHttp: { inc(labels: { kind: string }): void };
  };
}

/** Answers what never became a request. Such a thing has no route and no record. */
export function answerBroken(error: NodeJS.ErrnoException, socket: Socket, tools: BrokenTools): void {
  const kind = brokenKinds[error.code ?? ''] ?? (error.code?.startsWith('HPE_') === true ? 'not_http' : 'connection');
  tools.metrics.brokenHttp.inc({ kind });
  // Where the framing breaks inside a body, the request has a route: its handler records what came and answers.
  const answering = breakOff(socket);
  if (kind === 'connection' || !socket.writable) {
    socket.destroy();
    return;
  }
  if (answering) return;
  const body = JSON.stringify({ error: errors.brokenRequest.error });
  socket.end(
    `HTTP/1.1 400 Bad Request\r\nContent-Type: application/json; charset=utf-8\r\nContent-Length: ${Buffer.byteLength(body)}\r\n` +
      `X-Request-Id: ${newId('req')}\r\nConnection: close\r\n\r\n${body}`,
  );
  tools.metrics.requests.inc({ status: '400' });
  setTimeout(() => socket.destroy(), BROKEN_ANSWER_MS).unref();
}

const brokenKinds: Readonly<Record<string, string>> = {
  ERR_HTTP_REQUEST_TIMEOUT: 'too_slow',
  HPE_HEADER_OVERFLOW: 'headers_too_large',
  HPE_CHUNK_EXTENSIONS_OVERFLOW: 'chunk_extensions_too_large',
};
