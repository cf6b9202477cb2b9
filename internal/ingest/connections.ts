/** The connections of the partner port: their bounds, and answers to invalid HTTP. */
import { STATUS_CODES, type IncomingMessage, type Server } from 'node:http';
import type { Socket } from 'node:net';
import type { Clock } from '../platform/process/clock.ts';
import { pause } from '../platform/process/deadline.ts';
import { FairShares } from '../fair/shares.ts';
import { hasRequestBegun } from '../platform/http/inside-node.ts';
import { newId } from '../platform/stores/ids.ts';
import type { IngestMetrics } from '../telemetry/metrics.ts';
import type { Hop, ReadHop } from './client-address.ts';
import { type HelpLinks, INGEST_PATH } from './contract.ts';
import { errors, type ErrorAnswer } from './errors.ts';
import {
  LAST_ANSWERS_MS,
  MAX_CONNECTIONS_PER_ADDRESS,
  MAX_HEADERS,
  MAX_PIPELINED,
  SHARED,
} from './bounds.ts';

/** A connection is closed if its client takes nothing of an answer between two looks. */
const UNREAD_LOOK_MS = 10_000;

const LAST_LOOK_EVERY_MS = 20;

/** Limits connections, and replaces Node's own answers. */
export class Connections {
  readonly #readHop: ReadHop;
  readonly #tools: BrokenTools;
  readonly #byAddress = new Map<string, number>();
  readonly #open = new FairShares<Connection>(
    SHARED.connections,
    (connection) => this.#destroy(connection, 'too_many_connections'),
    ({ mayBeClosed }) => mayBeClosed,
  );
  readonly #looking: NodeJS.Timeout;

  constructor(readHop: ReadHop, tools: BrokenTools) {
    this.#readHop = readHop;
    this.#tools = tools;
    // A connection with an unread answer never gives way, so its client could keep it.
    this.#looking = setInterval(() => {
      for (const connection of this.#open.holders)
        if (connection.isUnread()) this.#destroy(connection, 'answer_unread');
    }, UNREAD_LOOK_MS);
  }

  watch(server: Server): Server {
    server.maxHeadersCount = MAX_HEADERS;
    return (
      server
        .on('connection', (socket) => this.#accept(socket))
        .on('clientError', (error, socket) => answerBroken(error, socket as Socket, this.#tools))
        .on('connect', (_request, socket) => answerConnect(socket as Socket, this.#tools))
        // Node would answer 417 without a body; RFC 9110 §10.1.1 allows ignoring an unknown Expect.
        .on('checkExpectation', (request, answer) => server.emit('request', request, answer))
        // Node would send 100 before the key is checked.
        .on('checkContinue', (request, answer) => server.emit('request', request, answer))
    );
  }

  /**
   * Waits while busy clients leave after `Connection: close`; closing between two requests would
   * reset the next one.
   */
  async close(): Promise<void> {
    const until = performance.now() + LAST_ANSWERS_MS;
    while ([...this.#open.holders].length > 0 && performance.now() < until)
      await pause(LAST_LOOK_EVERY_MS);
    clearInterval(this.#looking);
    // Node stops the time-out of a connection without a complete head, which would prolong a drain.
    for (const { isAnswering, socket } of this.#open.holders) if (!isAnswering) socket.destroy();
  }

  #accept(socket: Socket): void {
    // Node removes its own listener at a CONNECT, and a socket error would end the process.
    socket.on('error', () => {});
    const peer = this.#readHop(socket.remoteAddress ?? '');
    // Already reset; without an address it could not be limited.
    if (peer === undefined) {
      socket.destroy();
      return;
    }
    const connection = new Connection(socket, peer, this.#open);
    if (peer.isProxy) return;
    const { limitKey } = peer.client;
    const count = (this.#byAddress.get(limitKey) ?? 0) + 1;
    this.#byAddress.set(limitKey, count);
    socket.once('close', () => {
      const left = (this.#byAddress.get(limitKey) ?? 1) - 1;
      if (left === 0) this.#byAddress.delete(limitKey);
      else this.#byAddress.set(limitKey, left);
    });
    if (count > MAX_CONNECTIONS_PER_ADDRESS) this.#destroy(connection, 'too_many_from_address');
  }

  #destroy({ socket }: Connection, kind: BrokenKind): void {
    this.#tools.metrics.brokenHttp.inc({ kind });
    socket.destroy();
  }
}

/** Reads the body of a request. */
interface Reader {
  /** The rest cannot be read. */
  breakOff(): void;
}

const connections = new WeakMap<Socket, Connection>();

/**
 * One connection: its owner, its unanswered requests, broken framing, closing.
 *
 * Node reports broken framing only to the server. Earlier requests are answered first, because the
 * client would take the error for one of their answers.
 */
export class Connection {
  readonly socket: Socket;
  readonly peer: Hop;
  /** The next answer is the last. */
  isClosing = false;
  readonly #shares: FairShares<Connection>;
  #partnerId = '';
  #answering = 0;
  #broken = false;
  #taken: number | undefined;
  readonly #readers = new Set<Reader>();

  constructor(socket: Socket, peer: Hop, shares: FairShares<Connection>) {
    this.socket = socket;
    this.peer = peer;
    this.#shares = shares;
    connections.set(socket, this);
    shares.hold(this, ['', peer.client.limitKey]);
    socket.once('close', () => shares.remove(this));
  }

  /** Takes a socket of the partner port. */
  static of(socket: Socket): Connection {
    return connections.get(socket)!;
  }

  /** Called once a request's key is known. */
  belongTo(partnerId: string): void {
    if (partnerId === this.#partnerId || this.socket.destroyed) return;
    this.#partnerId = partnerId;
    this.#shares.hold(this, [partnerId, this.peer.client.limitKey]);
  }

  requestBegins(): 'served' | 'too_many' | 'closing' {
    this.#answering += 1;
    if (this.isClosing) return 'closing';
    return this.#answering - 1 > MAX_PIPELINED ? 'too_many' : 'served';
  }

  requestEnds(): void {
    this.#answering -= 1;
    if (this.#broken && this.#answering === 0) this.socket.destroySoon();
  }

  get isAnswering(): boolean {
    return this.#answering > 0;
  }

  /** True unless a complete request waits for its answer. */
  get mayBeClosed(): boolean {
    return this.#answering === this.#readers.size;
  }

  /** True if a written answer has made no progress since the last call. */
  isUnread(): boolean {
    const { bytesWritten, writableLength } = this.socket;
    const taken = writableLength === 0 ? undefined : bytesWritten - writableLength;
    const isUnread = taken !== undefined && taken === this.#taken;
    this.#taken = taken;
    return isUnread;
  }

  get hasBegun(): boolean {
    return this.isAnswering || hasRequestBegun(this.socket);
  }

  /** Stops all that read a body of this connection; true if a request is still unanswered. */
  breakOff(): boolean {
    this.#broken = true;
    for (const reader of this.#readers) reader.breakOff();
    return this.isAnswering;
  }

  beginsToRead(reader: Reader): void {
    this.#readers.add(reader);
    if (this.#broken) reader.breakOff();
  }

  endsToRead(reader: Reader): void {
    this.#readers.delete(reader);
  }
}

const BROKEN_ANSWER_MS = 1_000;

export interface BrokenTools {
  /** Undefined where the OpenAPI document is switched off. */
  readonly help: HelpLinks | undefined;
  readonly clock: Clock;
  readonly metrics: IngestMetrics;
}

type BrokenKind = Parameters<IngestMetrics['brokenHttp']['inc']>[0]['kind'];

/** Answers invalid HTTP, and connections whose bytes never became a request. */
function answerBroken(error: NodeJS.ErrnoException, socket: Socket, tools: BrokenTools): void {
  const connection = Connection.of(socket);
  const code = error.code ?? '';
  const kind = brokenKinds[code] ?? (code.startsWith('HPE_') ? 'not_http' : 'connection');
  // Clients and proxies keep idle connections, and would take this for their next answer.
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
function answerConnect(socket: Socket, tools: BrokenTools): void {
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
    ...(tools.help === undefined ? [] : [`Link: ${tools.help(INGEST_PATH, status)}`]),
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
  // A proxy and Node could disagree on where the request ends.
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
