/**
 * Ingest from outside, case by case: status, exact body, and the record every request leaves (or
 * does not leave).
 */
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import {
  bodies,
  expectAnswer,
  expectRecord,
  head,
  idOf,
  openRaw,
  rawAnswer,
} from '../support/ingest.ts';
import { eventually } from '../support/wait.ts';
import { INGEST_PATH, send, sendRaw, type Answer } from '../support/http.ts';
import { openWorld, type InProcess, type World } from '../support/world.ts';

const MAX = 65_000;
let world: World;
let ingest: InProcess;
/** Every request that has to leave a record; nothing else may be in the database at the end. */
const recorded = new Set<string>();

beforeAll(async () => {
  world = await openWorld();
  ingest = await world.start('ingest');
});
// After all of them, in whatever order they ran: each request that had to be recorded left one
// record, and nothing else did.
afterAll(async () => {
  try {
    expect((await world.records()).map((record) => record._id).toSorted()).toEqual(
      [...recorded].toSorted(),
    );
  } finally {
    await world.close();
  }
});

const authorized = (): string => `Authorization: Bearer ${world.key}`;
const bytesOf = (body: string | Uint8Array): Buffer => Buffer.from(body);
const BOM = Buffer.from([0xef, 0xbb, 0xbf]);

/** A JSON object of exactly `size` bytes, filled with `filler`. */
function objectOf(size: number, filler = 'x'): Buffer {
  const frame = Buffer.byteLength('{"a":""}');
  const fillers = Math.floor((size - frame) / Buffer.byteLength(filler));
  const rest = size - frame - fillers * Buffer.byteLength(filler);
  return Buffer.from(`{"a":"${filler.repeat(fillers)}${'y'.repeat(rest)}"}`);
}

/** `bytes` in pieces of `size`. */
function pieces(bytes: Buffer, size: number): Buffer[] {
  return Array.from({ length: Math.ceil(bytes.length / size) }, (_, index) =>
    bytes.subarray(index * size, (index + 1) * size),
  );
}

async function expectStored(
  answer: Answer,
  outcome: 'accepted' | 'notAnObject' | 'tooLarge',
  body: string | Uint8Array,
  extra: {
    readonly contentType?: string;
    readonly userAgent?: string;
    readonly traceparent?: string;
  } = {},
): Promise<string> {
  const status = outcome === 'accepted' ? 202 : 400;
  const id = expectAnswer(answer, status, bodies[outcome]);
  recorded.add(id);
  const bytes = bytesOf(body);
  await expectRecord(world, id, {
    state: outcome === 'accepted' ? 'recorded' : 'malformed',
    httpStatus: status,
    partnerId: 'demo',
    bytes: bytes.subarray(0, MAX),
    bodyBytes: bytes.length,
    ...extra,
  });
  return id;
}

/** No record, and the connection can be used again. */
async function expectUnrecorded(id: string): Promise<void> {
  expect(await world.record(id)).toBeNull();
}

describe('a body', () => {
  test.each<[name: string, body: string | Uint8Array, outcome: 'accepted' | 'notAnObject']>([
    [
      'a valid application',
      '{"email":"a@example.com","business_name":"A","ein":"123456789"}',
      'accepted',
    ],
    ['an empty object', '{}', 'accepted'],
    ['an object in white space', ' \r\n\t{ "a" : 1 }\n ', 'accepted'],
    ['invalid field values', '{"email":7,"business_name":null,"ein":"12-3456789"}', 'accepted'],
    ['missing fields', '{"email":"a@example.com"}', 'accepted'],
    ['unknown fields', '{"other":true}', 'accepted'],
    ['an array', '[]', 'notAnObject'],
    ['an array of objects', '[{"email":"a@example.com"}]', 'notAnObject'],
    ['a string', '"text"', 'notAnObject'],
    ['a string that holds an object', '"{}"', 'notAnObject'],
    ['a number', '42', 'notAnObject'],
    ['true', 'true', 'notAnObject'],
    ['false', 'false', 'notAnObject'],
    ['null', 'null', 'notAnObject'],
    ['no bytes at all', '', 'notAnObject'],
    ['white space only', ' \r\n\t ', 'notAnObject'],
    ['a bare word', 'hello', 'notAnObject'],
    ['single quotes', "{'a':1}", 'notAnObject'],
    ['a trailing comma', '{"a":1,}', 'notAnObject'],
    ['a comment', '{"a":1/*x*/}', 'notAnObject'],
    ['NaN', '{"a":NaN}', 'notAnObject'],
    ['a raw line break in a string', '{"a":"b\nc"}', 'notAnObject'],
    ['two documents', '{}{}', 'notAnObject'],
    ['two documents on two lines', '{}\n{}', 'notAnObject'],
    ['garbage after the object', '{"a":1}garbage', 'notAnObject'],
    ['a NUL after the object', '{"a":1}\0', 'notAnObject'],
    ['a form', 'email=a%40example.com&ein=123456789', 'notAnObject'],
    ['a truncated object', '{"email":"a@example.com","busi', 'notAnObject'],
    [
      'bytes that are not UTF-8',
      Buffer.from([0x7b, 0x22, 0x61, 0x22, 0x3a, 0x22, 0xff, 0x22, 0x7d]),
      'notAnObject',
    ],
    [
      'overlong UTF-8',
      Buffer.from([0x7b, 0x22, 0xc0, 0xaf, 0x22, 0x3a, 0x31, 0x7d]),
      'notAnObject',
    ],
    [
      'a surrogate in UTF-8',
      Buffer.from([0x7b, 0x22, 0xed, 0xa0, 0x80, 0x22, 0x3a, 0x31, 0x7d]),
      'notAnObject',
    ],
    ['UTF-16 with its mark', Buffer.from('\ufeff{"a":1}', 'utf16le'), 'notAnObject'],
    ['UTF-16 without its mark', Buffer.from('{"a":1}', 'utf16le'), 'notAnObject'],
    ['a lone byte order mark', BOM, 'notAnObject'],
    ['a byte order mark and an object', Buffer.concat([BOM, Buffer.from('{"a":1}')]), 'accepted'],
    ['two byte order marks', Buffer.concat([BOM, BOM, Buffer.from('{"a":1}')]), 'notAnObject'],
    ['gzip', Buffer.from('1f8b0800000000000003ab5604000000ffff', 'hex'), 'notAnObject'],
    ['__proto__', '{"__proto__":{"polluted":true}}', 'accepted'],
    ['constructor', '{"constructor":{"prototype":{"polluted":true}}}', 'accepted'],
    ['$where', '{"$where":"sleep(10000)","$set":{"state":"completed"}}', 'accepted'],
    ['a dotted key', '{"a.b":1,"":2,".":3}', 'accepted'],
    ['a NUL in a key', '{"a\\u0000b":1}', 'accepted'],
    ['10,000 arrays in an object', `{"a":${'['.repeat(10_000)}${']'.repeat(10_000)}}`, 'accepted'],
    ['10,000 objects in an object', `${'{"a":'.repeat(10_000)}1${'}'.repeat(10_000)}`, 'accepted'],
    ['repeated keys', '{"email":"a@example.com","email":"b@example.com"}', 'accepted'],
    ['huge numbers', `{"a":1e999999,"b":${'9'.repeat(400)},"c":-0,"d":1e-999999}`, 'accepted'],
    ['lone surrogates, escaped', String.raw`{"a":"\ud800","\udfff":"b"}`, 'accepted'],
    ['every control character, escaped', String.raw`{"a":"\u0000\u001f\u007f\u2028"}`, 'accepted'],
    ['64,999 bytes', objectOf(64_999), 'accepted'],
    ['65,000 bytes', objectOf(65_000), 'accepted'],
    ['65,000 bytes of é', objectOf(65_000, 'é'), 'accepted'],
    ['65,000 bytes of emoji', objectOf(65_000, '🏦'), 'accepted'],
    ['65,000 bytes of no JSON', Buffer.alloc(65_000, 'x'), 'notAnObject'],
  ])('%s', async (_name, body, outcome) => {
    await expectStored(await send(ingest.url, { key: world.key, body }), outcome, body);
    // Chunked in small pieces, which also cuts through the middle of multibyte characters.
    const chunks = pieces(bytesOf(body), body.length > 1_000 ? 4_001 : 1);
    await expectStored(await send(ingest.url, { key: world.key, chunks }), outcome, body);
  });

  test('keys that mean something to JavaScript have changed nothing', () => {
    expect(Object.keys(Object.prototype)).toEqual([]);
    expect(({} as Record<string, unknown>)['polluted']).toBeUndefined();
  });

  test.each<[name: string, body: Buffer]>([
    ['65,001 bytes of an object', objectOf(65_001)],
    ['65,001 bytes in 32,505 characters', objectOf(65_001, 'é')],
    ['65,001 bytes in 16,258 emoji', objectOf(65_001, '🏦')],
    ['an object of 10 MB', objectOf(10_000_000)],
    ['10 MB of no JSON', Buffer.alloc(10_000_000, 'x')],
    ['a small object after 65,000 blanks', Buffer.from(`${' '.repeat(65_000)}{}`)],
  ])('of %s is answered 400 and recorded with its first 65,000 bytes', async (_name, body) => {
    await expectStored(await send(ingest.url, { key: world.key, body }), 'tooLarge', body);
    const answer = await send(ingest.url, { key: world.key, chunks: pieces(body, 50_001) });
    await expectStored(answer, 'tooLarge', body);
    expect(answer.headers['connection']).toBe('close');
  });

  test('the same bytes sent twice are two requests', async () => {
    const body = '{"email":"twice@example.com","business_name":"Twice","ein":"000000002"}';
    const ids = await Promise.all(
      [1, 2].map(async () =>
        expectStored(await send(ingest.url, { key: world.key, body }), 'accepted', body),
      ),
    );
    expect(new Set(ids).size).toBe(2);
  });
});

describe('headers that do not matter', () => {
  test.each<[name: string, headers: Record<string, string>]>([
    ['text/plain', { 'content-type': 'text/plain' }],
    ['JSON with a charset', { 'content-type': 'application/json; charset=latin1' }],
    ['a malformed content type', { 'content-type': ';;;' }],
    ['an empty content type', { 'content-type': '' }],
    ['multipart', { 'content-type': 'multipart/form-data; boundary=x' }],
    ['a form', { 'content-type': 'application/x-www-form-urlencoded' }],
    ['XML', { 'content-type': 'application/xml' }],
    ['a content type of 300 characters', { 'content-type': `text/${'x'.repeat(295)}` }],
    ['Content-Encoding: gzip on plain JSON', { 'content-encoding': 'gzip' }],
    ['Accept: text/html', { accept: 'text/html' }],
    ['a request id of the partner', { 'x-request-id': 'req_mine', 'request-id': 'req_mine' }],
    ['an X-HTTP-Method-Override', { 'x-http-method-override': 'DELETE' }],
    ['an Upgrade', { connection: 'upgrade', upgrade: 'websocket' }],
  ])('%s', async (_name, headers) => {
    const body = '{"a":"ü"}';
    const contentType = headers['content-type']?.slice(0, 256);
    const answer = await send(ingest.url, { key: world.key, body, headers });
    await expectStored(answer, 'accepted', body, contentType === undefined ? {} : { contentType });
  });

  test('a gzipped body is not decoded', async () => {
    const body = Buffer.from('1f8b0800000000000003ab5604000000ffff0300', 'hex');
    const headers = { 'content-encoding': 'gzip', 'content-type': 'application/json' };
    const answer = await send(ingest.url, { key: world.key, body, headers });
    await expectStored(answer, 'notAnObject', body, { contentType: 'application/json' });
  });

  test('User-Agent is kept up to 256 characters, and a valid traceparent', async () => {
    const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
    const headers = { 'user-agent': 'u'.repeat(300), traceparent };
    const answer = await send(ingest.url, { key: world.key, body: '{}', headers });
    await expectStored(answer, 'accepted', '{}', { userAgent: 'u'.repeat(256), traceparent });
  });

  test.each(['', 'nonsense', '00-00000000000000000000000000000000-b7ad6b7169203331-01', 'ff-x'])(
    'the invalid traceparent %j is left out',
    async (traceparent) => {
      await expectStored(
        await send(ingest.url, { key: world.key, body: '{}', headers: { traceparent } }),
        'accepted',
        '{}',
      );
    },
  );
});

describe('authentication', () => {
  type Refusal = 'keyMissing' | 'keyInvalid' | 'partnerInactive';
  const unknown = 'pik_0000000000000000000000000000000000000000000000';

  test.each<[name: string, authorization: (() => string) | undefined, refusal: Refusal]>([
    ['no header', undefined, 'keyMissing'],
    ['an empty header', () => '', 'keyMissing'],
    ['Basic', () => 'Basic ZGVtbzpkZW1v', 'keyMissing'],
    ['the bare key', () => world.key, 'keyMissing'],
    ['Bearer alone', () => 'Bearer', 'keyMissing'],
    ['Bearer and spaces', () => 'Bearer    ', 'keyMissing'],
    ['Bearer and the key without a space', () => `Bearer${world.key}`, 'keyMissing'],
    ['Bearer: with a colon', () => `Bearer: ${world.key}`, 'keyMissing'],
    ['an unknown key', () => `Bearer ${unknown}`, 'keyInvalid'],
    ['a short key', () => 'Bearer x', 'keyInvalid'],
    [
      'the key with its last character missing',
      () => `Bearer ${world.key.slice(0, -1)}`,
      'keyInvalid',
    ],
    ['the key in other case', () => `Bearer ${world.key.toUpperCase()}`, 'keyInvalid'],
    ['the key in quotes', () => `Bearer "${world.key}"`, 'keyInvalid'],
    [
      'a space inside the key',
      () => `Bearer ${world.key.slice(0, 9)} ${world.key.slice(9)}`,
      'keyInvalid',
    ],
    ['two keys', () => `Bearer ${world.key}, Bearer ${world.key}`, 'keyInvalid'],
    ['a key of 8,000 characters', () => `Bearer ${'k'.repeat(8_000)}`, 'keyInvalid'],
    ['an inactive partner', () => `Bearer ${world.inactiveKey}`, 'partnerInactive'],
    [
      'an inactive partner, bearer in lower case',
      () => `bearer ${world.inactiveKey}`,
      'partnerInactive',
    ],
  ])('%s is refused, and recorded without its body', async (_name, authorization, refusal) => {
    const headers = {
      'content-type': 'application/json',
      ...(authorization === undefined ? {} : { authorization: authorization() }),
    };
    const answer = await send(ingest.url, { headers, body: '{"email":"a@example.com"}' });
    const status = refusal === 'partnerInactive' ? 403 : 401;
    const id = expectAnswer(answer, status, bodies[refusal]);
    expect(answer.headers['www-authenticate']).toBe(status === 401 ? 'Bearer' : undefined);
    recorded.add(id);
    await expectRecord(world, id, {
      state: 'refused',
      httpStatus: status,
      contentType: 'application/json',
      ...(status === 403 ? { partnerId: 'dormant' } : {}),
    });
  });

  test.each<[name: string, authorization: () => string]>([
    ['bearer in lower case', () => `bearer ${world.key}`],
    ['BEARER in upper case', () => `BEARER ${world.key}`],
    ['two spaces', () => `Bearer  ${world.key}`],
    ['a tab', () => `Bearer\t${world.key}`],
    ['spaces after the key', () => `Bearer ${world.key}   `],
    ['a tab before the scheme', () => `\tBearer ${world.key}`],
  ])('%s is accepted', async (_name, authorization) => {
    const bytes = `${head([`Authorization: ${authorization()}`, 'Content-Length: 2', 'Connection: close'])}{}`;
    await expectStored(await rawAnswer(ingest.url, bytes), 'accepted', '{}');
  });

  test('of two Authorization headers the first one counts', async () => {
    const both = [`Authorization: Bearer ${world.key}`, `Authorization: Bearer ${unknown}`];
    const rest = ['Content-Length: 2', 'Connection: close'];
    await expectStored(
      await rawAnswer(ingest.url, `${head([...both, ...rest])}{}`),
      'accepted',
      '{}',
    );
    const answer = await rawAnswer(ingest.url, `${head([...both.toReversed(), ...rest])}{}`);
    const id = expectAnswer(answer, 401, bodies.keyInvalid);
    recorded.add(id);
    await expectRecord(world, id, { state: 'refused', httpStatus: 401 });
  });

  test('a refused body of 10 MB, sent before anything is read, gets its answer and no reset', async () => {
    const answer = await send(ingest.url, { body: Buffer.alloc(10_000_000, 'x') });
    const id = expectAnswer(answer, 401, bodies.keyMissing);
    recorded.add(id);
    await expectRecord(world, id, { state: 'refused', httpStatus: 401 });
  });

  test('a refused body beyond what is drained gets its answer, and the connection ends', async () => {
    const connection = await openRaw(ingest.url);
    connection.write(head(['Content-Length: 20000000']));
    connection.write(Buffer.alloc(17_000_000, 'x'));
    const answer = await connection.answer();
    const id = expectAnswer(answer, 401, bodies.keyMissing);
    expect(answer.headers['connection']).toBe('close');
    await connection.closed();
    recorded.add(id);
    await expectRecord(world, id, { state: 'refused', httpStatus: 401 });
  });
});

describe('other methods and paths', () => {
  test.each(['GET', 'HEAD', 'PUT', 'DELETE', 'OPTIONS', 'PATCH', 'TRACE', 'PROPFIND', 'QUERY'])(
    '%s is answered 405 with Allow, with or without a key or a body, and leaves no record',
    async (method) => {
      for (const options of [{}, { key: world.key, body: method === 'TRACE' ? '' : '{"a":1}' }]) {
        const answer = await send(ingest.url, { method, ...options });
        const id = expectAnswer(answer, 405, method === 'HEAD' ? '' : bodies.methodNotAllowed);
        expect(answer.headers['allow']).toBe('POST');
        await expectUnrecorded(id);
      }
    },
  );

  test.each([
    '/',
    '/api/v1/capital',
    '/api/v2/capital/ingest',
    `${INGEST_PATH}/`,
    `${INGEST_PATH}/x`,
    INGEST_PATH.toUpperCase(),
    '/api/v1/capital/Ingest',
    '/api/v1//capital/ingest',
    '//api/v1/capital/ingest',
    '/api/v1/capital/ingest;x=1',
    '/api/v1/capital/ingest%',
    '/api/v1/capital/%zz',
    '/api/v1/capital/ingest%2f',
    '/%ff%fe',
    '/metrics',
    '/livez',
    `/${'x'.repeat(4_000)}`,
    '*',
  ])('POST %s is answered 404 and leaves no record', async (path) => {
    const lines = [`Authorization: Bearer ${world.key}`, 'Content-Length: 2', 'Connection: close'];
    const answered404 = (): Promise<number> =>
      world.metric(ingest, 'partner_ingest_requests_total', { status: '404' });
    const before = await answered404();
    const answer = await rawAnswer(ingest.url, `${head(lines, `POST ${path} HTTP/1.1`)}{}`);
    await expectUnrecorded(expectAnswer(answer, 404, bodies.notFound));
    // Counted once the answer is out.
    await eventually('it to be counted', async () => (await answered404()) === before + 1);
  });

  test.each(['?x=1', '?', '?x=%zz', '?__proto__[a]=1'])(
    'POST with the query %s is served',
    async (query) => {
      await expectStored(
        await send(ingest.url, { path: INGEST_PATH + query, key: world.key, body: '{}' }),
        'accepted',
        '{}',
      );
    },
  );

  test('GET with a query is still a 405', async () => {
    const answer = await send(ingest.url, { method: 'GET', path: `${INGEST_PATH}?x=1` });
    expectAnswer(answer, 405, bodies.methodNotAllowed);
  });
});

describe('HTTP', () => {
  test('an Expect that nobody knows is ignored', async () => {
    const lines = [authorized(), 'Content-Length: 2', 'Expect: miracles', 'Connection: close'];
    await expectStored(await rawAnswer(ingest.url, `${head(lines)}{}`), 'accepted', '{}');
  });

  test('HTTP/1.0 is served and the connection closed', async () => {
    const line = `POST ${INGEST_PATH} HTTP/1.0`;
    const text = await sendRaw(
      ingest.url,
      `${line}\r\n${authorized()}\r\nContent-Length: 2\r\n\r\n{}`,
    );
    const id = /x-request-id: (\S+)/i.exec(text)?.[1] ?? '';
    expect(text).toMatch(/^HTTP\/1\.1 202 /);
    expect(text.endsWith(`\r\n\r\n${bodies.accepted(id)}`)).toBe(true);
    recorded.add(id);
    await expectRecord(world, id, {
      state: 'recorded',
      httpStatus: 202,
      partnerId: 'demo',
      bytes: Buffer.from('{}'),
    });
  });

  test('HTTP/1.1 without Host is a 400 in our words', async () => {
    const lines = [`POST ${INGEST_PATH} HTTP/1.1`, authorized(), 'Content-Length: 2', '', '{}'];
    await expectUnrecorded(
      expectAnswer(await rawAnswer(ingest.url, lines.join('\r\n')), 400, bodies.brokenRequest),
    );
  });

  test('a request line in absolute form is served', async () => {
    const lines = [authorized(), 'Content-Length: 2', 'Connection: close'];
    const line = `POST http://ingest.test${INGEST_PATH} HTTP/1.1`;
    await expectStored(await rawAnswer(ingest.url, `${head(lines, line)}{}`), 'accepted', '{}');
  });

  test('ten pipelined requests are answered in order, each with its own id', async () => {
    const connection = await openRaw(ingest.url);
    const sent = Array.from({ length: 10 }, (_, index) => `{"n":${index}}`);
    connection.write(
      sent
        .map((body) => `${head([authorized(), `Content-Length: ${body.length}`])}${body}`)
        .join(''),
    );
    for (const body of sent) await expectStored(await connection.answer(), 'accepted', body);
    connection.socket.destroy();
  });

  test('one connection serves on after every kind of answer whose body was read to its end', async () => {
    const connection = await openRaw(ingest.url);
    const post = (lines: readonly string[], body: string, line?: string): void =>
      connection.write(head([...lines, `Content-Length: ${body.length}`], line) + body);

    post([], 'x'.repeat(100_000));
    let id = expectAnswer(await connection.answer(), 401, bodies.keyMissing);
    recorded.add(id);
    await expectRecord(world, id, { state: 'refused', httpStatus: 401 });

    post([authorized()], 'x'.repeat(100_000), `PUT ${INGEST_PATH} HTTP/1.1`);
    id = expectAnswer(await connection.answer(), 405, bodies.methodNotAllowed);
    await expectUnrecorded(id);

    post([authorized()], 'x'.repeat(100_000), 'POST /nowhere HTTP/1.1');
    expectAnswer(await connection.answer(), 404, bodies.notFound);

    post([authorized()], '[]');
    await expectStored(await connection.answer(), 'notAnObject', '[]');
    post([authorized()], '{}');
    await expectStored(await connection.answer(), 'accepted', '{}');
    connection.socket.destroy();
  });
});

test('ids grow with time', async () => {
  const first = idOf(await send(ingest.url, { method: 'GET' }));
  await new Promise((resolve) => setImmediate(resolve));
  const second = idOf(await send(ingest.url, { method: 'GET' }));
  expect(first < second).toBe(true);
});
