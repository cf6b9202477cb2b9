/** Status, exact body and record of each kind of request. */
import { describe, expect, test } from '@jest/globals';
import { bodies, expectAnswer, expectRecord, head, openRaw, rawAnswer } from '../support/ingest.ts';
import { eventually } from '../support/wait.ts';
import { INGEST_PATH, send, type Answer } from '../support/http.ts';
import { worldOf } from '../support/world.ts';

const MAX = 65_000;
const { world, ingest } = await worldOf(['ingest'], { documentedRights: true });
/** Requests that must leave a record; the database must hold no others. */
const recorded = new Set<string>();

const authorized = `Authorization: Bearer ${world.key}`;
const bytesOf = (body: string | Uint8Array): Buffer => Buffer.from(body);
const BOM = Buffer.from([0xef, 0xbb, 0xbf]);

/** A JSON object of exactly `size` bytes, filled with `filler`. */
function objectOf(size: number, filler = 'x'): Buffer {
  const frame = Buffer.byteLength('{"a":""}');
  const fillers = Math.floor((size - frame) / Buffer.byteLength(filler));
  const rest = size - frame - fillers * Buffer.byteLength(filler);
  return Buffer.from(`{"a":"${filler.repeat(fillers)}${'y'.repeat(rest)}"}`);
}

/** Cuts `bytes` into pieces of `size`. */
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

/** A 401 or 403, on record without its body. */
async function expectRefused(
  answer: Answer,
  refusal: 'keyMissing' | 'keyInvalid' | 'partnerInactive',
  extra: { readonly contentType?: string } = {},
): Promise<void> {
  const inactive = refusal === 'partnerInactive';
  const id = expectAnswer(answer, inactive ? 403 : 401, bodies[refusal]);
  expect(answer.headers['www-authenticate']).toBe(inactive ? undefined : 'Bearer');
  recorded.add(id);
  await expectRecord(world, id, {
    state: 'refused',
    httpStatus: inactive ? 403 : 401,
    ...(inactive ? { partnerId: 'dormant' } : {}),
    ...extra,
  });
}

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
    ['an object in white space', ' \r\n\t{ "a" : 1 }\n ', 'accepted'],
    ['invalid field values', '{"email":7,"business_name":null,"ein":"12-3456789"}', 'accepted'],
    ['an array', '[]', 'notAnObject'],
    ['null', 'null', 'notAnObject'],
    ['no bytes at all', '', 'notAnObject'],
    ['a NUL after the object', '{"a":1}\0', 'notAnObject'],
    ['a truncated object', '{"email":"a@example.com","busi', 'notAnObject'],
    [
      'bytes that are not UTF-8',
      Buffer.from([0x7b, 0x22, 0x61, 0x22, 0x3a, 0x22, 0xff, 0x22, 0x7d]),
      'notAnObject',
    ],
    ['a byte order mark and an object', Buffer.concat([BOM, Buffer.from('{"a":1}')]), 'accepted'],
    ['two byte order marks', Buffer.concat([BOM, BOM, Buffer.from('{"a":1}')]), 'notAnObject'],
    ['__proto__', '{"__proto__":{"polluted":true}}', 'accepted'],
    ['$where', '{"$where":"sleep(10000)","$set":{"state":"completed"}}', 'accepted'],
    ['10,000 objects in an object', `${'{"a":'.repeat(10_000)}1${'}'.repeat(10_000)}`, 'accepted'],
    ['huge numbers', `{"a":1e999999,"b":${'9'.repeat(400)},"c":-0,"d":1e-999999}`, 'accepted'],
    ['65,000 bytes', objectOf(65_000), 'accepted'],
    ['65,000 bytes of emoji', objectOf(65_000, '🏦'), 'accepted'],
  ])('%s', async (_name, body, outcome) => {
    await expectStored(await send(ingest.url, { key: world.key, body }), outcome, body);
    // Small chunks also split multibyte characters.
    const chunks = pieces(bytesOf(body), body.length > 1_000 ? 4_001 : 1);
    await expectStored(await send(ingest.url, { key: world.key, chunks }), outcome, body);
    // Keys that mean something to JavaScript have no effect.
    expect(Object.keys(Object.prototype)).toEqual([]);
    expect(({} as Record<string, unknown>)['polluted']).toBeUndefined();
  });

  test.each<[name: string, body: Buffer]>([
    ['65,001 bytes of an object', objectOf(65_001)],
    ['65,001 bytes in 16,258 emoji', objectOf(65_001, '🏦')],
    ['10 MB of no JSON', Buffer.alloc(10_000_000, 'x')],
    ['a small object after 65,000 blanks', Buffer.from(`${' '.repeat(65_000)}{}`)],
  ])('of %s is answered 400 and recorded with its first 65,000 bytes', async (_name, body) => {
    await expectStored(await send(ingest.url, { key: world.key, body }), 'tooLarge', body);
    const answer = await send(ingest.url, { key: world.key, chunks: pieces(body, 50_001) });
    await expectStored(answer, 'tooLarge', body);
    expect(answer.headers['connection']).toBe('close');
  });
});

describe('headers', () => {
  test.each<[name: string, headers: Record<string, string>]>([
    ['JSON with a charset', { 'content-type': 'application/json; charset=latin1' }],
    ['a malformed content type', { 'content-type': ';;;' }],
    ['Content-Encoding: gzip on plain JSON', { 'content-encoding': 'gzip' }],
    ['a request id of the partner', { 'x-request-id': 'req_mine', 'request-id': 'req_mine' }],
    ['no traceparent', { traceparent: '00-00000000000000000000000000000000-b7ad6b7169203331-01' }],
  ])('%s changes nothing', async (_name, headers) => {
    const body = '{"a":"ü"}';
    const contentType = headers['content-type'];
    const answer = await send(ingest.url, { key: world.key, body, headers });
    await expectStored(answer, 'accepted', body, contentType === undefined ? {} : { contentType });
  });

  test('Content-Type and User-Agent are kept up to 256 characters, and a valid traceparent', async () => {
    const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
    const long = 'u'.repeat(300);
    const headers = { 'content-type': long, 'user-agent': long, traceparent };
    const answer = await send(ingest.url, { key: world.key, body: '{}', headers });
    const kept = long.slice(0, 256);
    await expectStored(answer, 'accepted', '{}', {
      contentType: kept,
      userAgent: kept,
      traceparent,
    });
  });
});

describe('authentication', () => {
  const unknown = 'pik_0000000000000000000000000000000000000000000000';

  test.each<[refusal: 'keyMissing' | 'keyInvalid' | 'partnerInactive', given: () => string[]]>([
    [
      'keyMissing',
      () => ['', 'Bearer', 'Bearer \t', world.key, `Bearer${world.key}`, 'Basic ZGU6bw=='],
    ],
    [
      'keyInvalid',
      () =>
        [unknown, 'k'.repeat(8_000), `${world.key} a`, `${world.key},`].map(
          (key) => `Bearer ${key}`,
        ),
    ],
    ['partnerInactive', () => [`Bearer ${world.inactiveKey}`]],
  ])('%s is answered, and recorded without the body', async (refusal, given) => {
    const contentType = 'application/json';
    for (const authorization of given()) {
      const headers = { 'content-type': contentType, authorization };
      const answer = await send(ingest.url, { headers, body: '{"email":"a@example.com"}' });
      await expectRefused(answer, refusal, { contentType });
    }
  });

  test('the scheme has any case, and any white space behind it', async () => {
    for (const scheme of ['bEaReR ', 'Bearer\t', ' Bearer   ']) {
      const headers = { authorization: `${scheme}${world.key} ` };
      await expectStored(await send(ingest.url, { headers, body: '{}' }), 'accepted', '{}');
    }
  });

  test('of two Authorization headers the first one counts', async () => {
    const both = [authorized, `Authorization: Bearer ${unknown}`];
    const rest = ['Content-Length: 2', 'Connection: close'];
    await expectStored(
      await rawAnswer(ingest.url, `${head([...both, ...rest])}{}`),
      'accepted',
      '{}',
    );
    const answer = await rawAnswer(ingest.url, `${head([...both.toReversed(), ...rest])}{}`);
    await expectRefused(answer, 'keyInvalid');
  });
});

describe('other methods and paths', () => {
  test.each(['GET', 'HEAD', 'PUT', 'OPTIONS', 'TRACE', 'QUERY'])(
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

  test('CONNECT is answered 405 in JSON', async () => {
    const request = 'CONNECT other.test:443 HTTP/1.1\r\nHost: other.test:443\r\n\r\n';
    const answer = await rawAnswer(ingest.url, request);
    expectAnswer(answer, 405, bodies.methodNotAllowed);
    const date = expect.any(String);
    expect(answer.headers).toMatchObject({ allow: 'POST', connection: 'close', date });
  });

  test.each([
    '/',
    `${INGEST_PATH}/`,
    INGEST_PATH.toUpperCase(),
    '//api/v1/capital/ingest',
    '/api/v1/capital/%zz',
    '/%ff%fe',
    '/metrics',
    `/${'x'.repeat(4_000)}`,
    '*',
  ])('POST %s is answered 404 and leaves no record', async (path) => {
    const lines = [authorized, 'Content-Length: 2', 'Connection: close'];
    const answered404 = (): Promise<number> =>
      world.metric(ingest, 'partner_ingest_requests_total', { status: '404' });
    const before = await answered404();
    const answer = await rawAnswer(ingest.url, `${head(lines, `POST ${path} HTTP/1.1`)}{}`);
    await expectUnrecorded(expectAnswer(answer, 404, bodies.notFound));
    // Ingest counts after it has sent the answer.
    await eventually('it to be counted', async () => (await answered404()) === before + 1);
  });
});

describe('HTTP', () => {
  test('an unknown Expect, a query and an absolute request line are served', async () => {
    const lines = [authorized, 'Content-Length: 2', 'Expect: miracles', 'Connection: close'];
    const line = `POST http://ingest.test${INGEST_PATH}?x=%zz HTTP/1.1`;
    await expectStored(await rawAnswer(ingest.url, `${head(lines, line)}{}`), 'accepted', '{}');
  });

  test('a connection is kept after every answer whose request body was read', async () => {
    const connection = await openRaw(ingest.url);
    const post = (lines: readonly string[], body: string, line?: string): void =>
      connection.write(head([...lines, `Content-Length: ${body.length}`], line) + body);

    post([], 'x'.repeat(100_000));
    await expectRefused(await connection.answer(), 'keyMissing');

    post([authorized], 'x'.repeat(100_000), `PUT ${INGEST_PATH} HTTP/1.1`);
    const id = expectAnswer(await connection.answer(), 405, bodies.methodNotAllowed);
    await expectUnrecorded(id);

    post([authorized], 'x'.repeat(100_000), 'POST /nowhere HTTP/1.1');
    expectAnswer(await connection.answer(), 404, bodies.notFound);

    post([authorized], '[]');
    await expectStored(await connection.answer(), 'notAnObject', '[]');
    post([authorized], '{}');
    await expectStored(await connection.answer(), 'accepted', '{}');
    connection.socket.destroy();
  });
});

test('no other request of these tests has a record', async () => {
  const ids = (await world.records()).map(({ _id }) => _id);
  expect(ids.toSorted()).toEqual([...recorded].toSorted());
});
