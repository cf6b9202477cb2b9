/** Exact answers, stored records and raw HTTP for tests of ingest. */
import { expect } from '@jest/globals';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { connect } from 'node:net';
import { normalizedApplicant } from '../../internal/application/fields.ts';
import { claimedIn } from '../../internal/application/parse-application.ts';
import { INGEST_PATH, type Answer } from './http.ts';
import { eventually } from './wait.ts';
import { mode, type World } from './world.ts';

export const bodies = {
  accepted: (id: string) =>
    `{"message":"Request accepted for processing","data":{"request_id":"${id}"}}`,
  notAnObject: (id: string) =>
    `{"error":"Request body must be a JSON object","data":{"request_id":"${id}"}}`,
  tooLarge: (id: string) =>
    `{"error":"Request body must not exceed 65000 bytes","data":{"request_id":"${id}"}}`,
  idempotencyKeyInvalid: (id: string) =>
    `{"error":"Idempotency-Key must be 1 to 255 characters, as a quoted string or without spaces and commas","data":{"request_id":"${id}"}}`,
  idempotencyMismatch: (id: string) =>
    `{"error":"Idempotency-Key was used with another body","data":{"request_id":"${id}"}}`,
  brokenRequest: '{"error":"Bad request: not valid HTTP"}',
  tooSlow: '{"error":"Request timeout: the request came too slowly and may be sent again"}',
  bodyTooSlow: (id: string) =>
    `{"error":"Request timeout: the request came too slowly and may be sent again","data":{"request_id":"${id}"}}`,
  keyMissing: '{"error":"Unauthorized: API Key missing"}',
  keyInvalid: '{"error":"Unauthorized: Invalid API Key"}',
  partnerInactive: '{"error":"Unauthorized: Partner account is inactive"}',
  notFound: '{"error":"Not found"}',
  methodNotAllowed: '{"error":"Method not allowed: use POST"}',
  internal: '{"error":"Internal error: the submission was not accepted and may be retried"}',
} as const;

export const REQUEST_ID = /^req_[0-9a-z]{26}$/;

export function idOf(answer: { readonly headers: Readonly<Record<string, string>> }): string {
  const id = answer.headers['x-request-id'] ?? '';
  expect(id).toMatch(REQUEST_ID);
  return id;
}

/** Expects status, exact body and content type; returns the request_id. */
export function expectAnswer(
  answer: Answer,
  status: number,
  body: string | ((id: string) => string),
): string {
  const id = idOf(answer);
  expect({ status: answer.status, body: answer.text }).toEqual({
    status,
    body: typeof body === 'string' ? body : body(id),
  });
  expect(answer.headers['content-type']).toBe('application/json; charset=utf-8');
  return id;
}

export interface ExpectedRecord {
  readonly state: 'recorded' | 'malformed' | 'refused';
  readonly httpStatus: number;
  /** The kept part of the body; undefined if none was read. */
  readonly bytes?: Uint8Array;
  /** The length of the whole body, where only its beginning is kept. */
  readonly bodyBytes?: number;
  readonly partnerId?: string;
  readonly contentType?: string;
  readonly userAgent?: string;
  readonly traceparent?: string;
}

const WEEK_MS = 7 * 86_400_000;

/** Expects the stored record of `requestId`, field for field. */
export async function expectRecord(
  world: World,
  requestId: string,
  expected: ExpectedRecord,
): Promise<void> {
  const record = await eventually(
    `the record ${requestId}`,
    async () => (await world.record(requestId)) ?? undefined,
  );
  const { body, receivedAt, stateAt, dueAt, expiresAt, history, ...rest } = record;
  const { bytes, ...wanted } = expected;
  expect(rest).toEqual({
    _id: requestId,
    remoteIp: '127.0.0.1',
    bodyBytes: bytes?.length ?? 0,
    schema: 1,
    version: 0,
    attempts: 0,
    ...(bytes === undefined
      ? {}
      : { bodySha256: createHash('sha256').update(bytes).digest('hex') }),
    ...(wanted.state === 'recorded' && bytes !== undefined
      ? { applicant: normalizedApplicant(claimedIn(bytes)) }
      : {}),
    ...(wanted.partnerId === 'demo' ? mode : {}),
    // People look for the key that is used wrongly.
    ...(wanted.state === 'recorded' || wanted.partnerId === undefined
      ? {}
      : { keyId: expect.stringMatching(/^[0-9a-f]{12}$/) }),
    ...wanted,
  });
  const kept = body === undefined ? undefined : Buffer.from(body.value());
  expect(kept?.length).toBe(bytes?.length);
  expect(bytes === undefined || kept?.equals(bytes) === true).toBe(true);
  expect(history).toEqual([{ state: expected.state, at: stateAt, attempt: 0 }]);
  if (expected.state === 'recorded') {
    expect(dueAt?.getTime()).toBe(receivedAt.getTime() + 15_000);
    expect(expiresAt).toBeUndefined();
  } else {
    expect(dueAt).toBeUndefined();
    expect(expiresAt?.getTime()).toBe(receivedAt.getTime() + WEEK_MS);
  }
}

export type RawConnection = Awaited<ReturnType<typeof openRaw>>;

/** A connection with raw bytes and answers in turn. */
export async function openRaw(baseUrl: string) {
  const { hostname, port } = new URL(baseUrl);
  let received = Buffer.alloc(0);
  let read = 0;
  let ended = false;
  const text = (): string => received.toString('latin1');
  const socket = connect(Number(port), hostname);
  socket.on('data', (part: Buffer) => {
    received = Buffer.concat([received, part]);
  });
  socket.on('close', () => {
    ended = true;
  });
  await once(socket, 'connect');
  // A reset must not fail the test: what came before it can still be read.
  socket.on('error', () => {});
  return {
    socket,
    write: (bytes: string | Uint8Array) => void socket.write(bytes),
    text,
    /** Resolves with the next answer; rejects if the connection ends first. */
    async answer(timeoutMs?: number): Promise<Answer> {
      const found = await eventually(
        'an answer',
        () => parseAnswer(received.subarray(read)) ?? (ended && 'none'),
        timeoutMs,
      );
      if (found === 'none') throw new Error(`closed without an answer; so far: ${text()}`);
      read += found.length;
      return found.answer;
    },
    closed: async (timeoutMs?: number) =>
      void (await eventually('the connection to close', () => ended, timeoutMs)),
  };
}

/** The first complete answer in `bytes` and its length, without interim answers. */
function parseAnswer(
  bytes: Buffer,
): { readonly answer: Answer; readonly length: number } | undefined {
  const headEnd = bytes.indexOf('\r\n\r\n');
  if (headEnd === -1) return undefined;
  const [statusLine = '', ...lines] = bytes.subarray(0, headEnd).toString('latin1').split('\r\n');
  const status = Number(statusLine.split(' ')[1]);
  const bodyStart = headEnd + 4;
  if (status < 200) {
    const next = parseAnswer(bytes.subarray(bodyStart));
    return next === undefined
      ? undefined
      : { answer: next.answer, length: bodyStart + next.length };
  }
  const headers = Object.fromEntries(
    lines.map((line) => [
      line.slice(0, line.indexOf(':')).toLowerCase(),
      line.slice(line.indexOf(':') + 1).trim(),
    ]),
  );
  const length = bodyStart + Number(headers['content-length'] ?? 0);
  if (bytes.length < length) return undefined;
  const text = bytes.subarray(bodyStart, length).toString('utf8');
  return {
    answer: { status, headers, text, json: text === '' ? undefined : JSON.parse(text) },
    length,
  };
}

/** Sends raw bytes on a new connection; returns the first answer. */
export async function rawAnswer(baseUrl: string, bytes: string | Uint8Array): Promise<Answer> {
  const connection = await openRaw(baseUrl);
  try {
    connection.write(bytes);
    return await connection.answer();
  } finally {
    connection.socket.destroy();
  }
}

/** The request line, Host, and the given header lines of a POST. */
export function head(
  lines: readonly string[],
  requestLine = `POST ${INGEST_PATH} HTTP/1.1`,
): string {
  return [requestLine, 'Host: ingest.test', ...lines, '', ''].join('\r\n');
}
