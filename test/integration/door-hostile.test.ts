/** The door against slow, broken and hostile HTTP: always an answer in our words, never two records for one request. */
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { bodies, expectAnswer, expectRecord, head, openRaw, type RawConnection } from '../support/door.ts';
import { INGEST_PATH, type Answer } from '../support/http.ts';
import { eventually } from '../support/wait.ts';
import { openWorld, type InProcess, type World } from '../support/world.ts';

/** The time-outs under test are 5 and 10 s, looked at every second. */
const SLOW_MS = 14_000;

interface Ended {
  readonly answer: Answer;
  readonly afterMs: number;
}

let world: World;
let ingest: InProcess;
/** Slow requests take seconds each, so all are begun at once and judged at the end. */
let slow: Record<'headers' | 'body' | 'drip' | 'refusedBody' | 'largeBody', Promise<Ended>>;
const recorded = new Set<string>();

beforeAll(async () => {
  world = await openWorld();
  ingest = await world.start('ingest');
  slow = {
    headers: begin(`POST ${INGEST_PATH} HTTP/1.1\r\nHost: door.test\r\nX-Slow: `),
    body: begin(`${head([authorized(), 'Content-Length: 100'])}{"a":`),
    drip: begin(head([authorized(), 'Transfer-Encoding: chunked']), (connection) => connection.write('1\r\n{\r\n')),
    refusedBody: begin(`${head(['Content-Length: 100'])}{"a":`),
    largeBody: begin(head([authorized(), 'Content-Length: 70000']) + 'x'.repeat(66_000)),
  };
  for (const one of Object.values(slow)) one.catch(() => {});
});
// After all of them, in whatever order they ran: each request that had to be recorded left one record, and nothing else did.
afterAll(async () => {
  try {
    expect((await world.records()).map((record) => record._id).toSorted()).toEqual([...recorded].toSorted());
  } finally {
    await world.close();
  }
});

/** KEY is filled in when the world is open. */
const post = (lines: readonly string[]): string => `${head(['Authorization: Bearer KEY', ...lines])}{}`;
const chunked = (): string => head([authorized(), 'Transfer-Encoding: chunked']);
const authorized = (): string => `Authorization: Bearer ${world.key}`;

async function begin(bytes: string, everyNowAndThen?: (connection: RawConnection) => void): Promise<Ended> {
  const connection = await openRaw(ingest.url);
  const startedAt = performance.now();
  connection.write(bytes);
  const timer = setInterval(() => everyNowAndThen?.(connection), 500);
  try {
    const answer = await connection.answer(SLOW_MS);
    const afterMs = performance.now() - startedAt;
    await connection.closed();
    return { answer, afterMs };
  } finally {
    clearInterval(timer);
    connection.socket.destroy();
  }
}

/** Writes, reads one answer, and makes sure that the connection then ends without another word. */
async function onlyAnswer(...writes: readonly (string | Uint8Array)[]): Promise<Answer> {
  const connection = await openRaw(ingest.url);
  for (const bytes of writes) connection.write(bytes);
  const answer = await connection.answer();
  await connection.closed();
  expect(connection.text().match(/HTTP\/1\.1 /g)).toHaveLength(1);
  return answer;
}

const broken = (kind: string): Promise<number> => world.metric(ingest, 'partner_ingest_broken_http_total', { kind });

async function expectMalformed(answer: Answer, bytes: string | Uint8Array): Promise<void> {
  const id = expectAnswer(answer, 400, bodies.notAnObject);
  recorded.add(id);
  await expectRecord(world, id, {
    state: 'malformed',
    httpStatus: 400,
    partnerId: 'demo',
    bytes: Buffer.from(bytes),
  });
}

describe('what is no HTTP', () => {
  test.each<[name: string, bytes: string | Uint8Array, kind: string]>([
    ['words', 'hello door\r\n\r\n', 'not_http'],
    ['TLS', Buffer.from('16030100c8010000c40303', 'hex'), 'not_http'],
    ['random bytes', Buffer.from([0xff, 0xfe, 0x00, 0x01, 0x0d, 0x0a, 0x0d, 0x0a]), 'not_http'],
    ['an unknown method', head([], `FETCH ${INGEST_PATH} HTTP/1.1`), 'not_http'],
    ['an unknown version', head([], `POST ${INGEST_PATH} HTTP/9.9`), 'not_http'],
    ['the preface of HTTP/2', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 'not_http'],
    ['a header line without a colon', post(['nonsense', 'Content-Length: 2']), 'not_http'],
    ['a blank before a colon', post(['Content-Length : 2']), 'not_http'],
    ['a NUL in a header', post(['X-Nul: a\0b', 'Content-Length: 2']), 'not_http'],
    ['headers of 17 kB', post([`X-Large: ${'x'.repeat(17_000)}`, 'Content-Length: 2']), 'headers_too_large'],
    ['100 headers', post([...Array.from({ length: 97 }, () => 'a: b'), 'Content-Length: 2']), 'headers_too_large'],
    ['a path of 20 kB', head([], `POST /${'x'.repeat(20_000)} HTTP/1.1`), 'headers_too_large'],
    ['Content-Length with Transfer-Encoding', post(['Content-Length: 2', 'Transfer-Encoding: chunked']), 'not_http'],
    ['Transfer-Encoding with Content-Length', post(['Transfer-Encoding: chunked', 'Content-Length: 2']), 'not_http'],
    ['Transfer-Encoding: chunked, identity', post(['Transfer-Encoding: chunked, identity']), 'not_http'],
    ['two Transfer-Encodings', post(['Transfer-Encoding: chunked', 'Transfer-Encoding: identity']), 'not_http'],
    ['two Content-Lengths', post(['Content-Length: 2', 'Content-Length: 44']), 'not_http'],
    ['the same Content-Length twice', post(['Content-Length: 2', 'Content-Length: 2']), 'not_http'],
    ['a list of Content-Lengths', post(['Content-Length: 2, 2']), 'not_http'],
    ['a negative Content-Length', post(['Content-Length: -2']), 'not_http'],
    ['a Content-Length in words', post(['Content-Length: two']), 'not_http'],
    ['a Content-Length beyond 64 bits', post(['Content-Length: 99999999999999999999999']), 'not_http'],
    ['no Host', `POST ${INGEST_PATH} HTTP/1.1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n`, 'no_host'],
  ])('%s is answered 400, counted and not recorded', async (_name, bytes, kind) => {
    const before = await broken(kind);
    const answers = await world.metric(ingest, 'partner_ingest_requests_total', { status: '400' });
    const withKey = typeof bytes === 'string' ? bytes.replace('KEY', world.key) : bytes;
    const answer = await onlyAnswer(withKey);
    expect(await world.record(expectAnswer(answer, 400, bodies.brokenRequest))).toBeNull();
    expect(answer.headers['connection']).toBe('close');
    expect(await broken(kind)).toBe(before + 1);
    // At least this one: on a busy machine some of the slow ones are answered meanwhile.
    expect(await world.metric(ingest, 'partner_ingest_requests_total', { status: '400' })).toBeGreaterThan(answers);
  });
});

describe('framing that breaks after the headers', () => {
  test.each<[name: string, rest: string, kept: string]>([
    ['a chunk size that is none', '5\r\n{"a":\r\nZZ\r\n', '{"a":'],
    ['a chunk longer than its size', '5\r\n{"a":1}\r\n0\r\n\r\n', '{"a":'],
    ['a negative chunk size', '5\r\n{"a":\r\n-1\r\n', '{"a":'],
    ['a chunk size beyond 64 bits', '5\r\n{"a":\r\nfffffffffffffffff\r\n', '{"a":'],
    ['no chunk size at all', 'hello', ''],
    ['chunk extensions of 20 kB', `5\r\n{"a":\r\n1;${'x'.repeat(20_000)}\r\n`, '{"a":'],
  ])('%s is a 400 with what came on record, in one packet or two', async (_name, rest, kept) => {
    await expectMalformed(await onlyAnswer(chunked() + rest), kept);

    const before = await world.metric(ingest, 'partner_ingest_limiter_decisions_total');
    const connection = await openRaw(ingest.url);
    connection.write(chunked());
    await eventually(
      'the door to read the body',
      async () => (await world.metric(ingest, 'partner_ingest_limiter_decisions_total')) > before,
    );
    connection.write(rest);
    await expectMalformed(await connection.answer(), kept);
    await connection.closed();
  });

  test('a Transfer-Encoding nobody knows is one request and a 400', async () => {
    for (const coding of ['xchunked', 'identity', 'gzip, xchunked']) {
      const answer = await onlyAnswer(`${head([authorized(), `Transfer-Encoding: ${coding}`])}0\r\n\r\n{}`);
      await expectMalformed(answer, '');
    }
  });

  test('of a refused request it changes nothing', async () => {
    const answer = await onlyAnswer(`${head(['Transfer-Encoding: chunked'])}5\r\n{"a":\r\nZZ\r\n`);
    const id = expectAnswer(answer, 401, bodies.keyMissing);
    recorded.add(id);
    await expectRecord(world, id, { state: 'refused', httpStatus: 401 });
  });

  test('after a whole request leaves that request its own answer', async () => {
    const whole = `${head([authorized(), 'Content-Length: 2'])}{}`;
    // A Content-Length that is too short does the same: what is left over is no request.
    for (const garbage of ['garbage\r\n\r\n', '{"left":"over"}']) {
      const before = await broken('not_http');
      const id = expectAnswer(await onlyAnswer(whole + garbage), 202, bodies.accepted);
      recorded.add(id);
      await expectRecord(world, id, {
        state: 'recorded',
        httpStatus: 202,
        partnerId: 'demo',
        bytes: Buffer.from('{}'),
      });
      expect(await broken('not_http')).toBe(before + 1);
    }
  });

  test('in the second of two pipelined requests leaves each its own answer and record', async () => {
    const connection = await openRaw(ingest.url);
    connection.write(`${head([authorized(), 'Content-Length: 2'])}{}${chunked()}5\r\n{"a":\r\nZZ\r\n`);
    const id = expectAnswer(await connection.answer(), 202, bodies.accepted);
    recorded.add(id);
    await expectRecord(world, id, {
      state: 'recorded',
      httpStatus: 202,
      partnerId: 'demo',
      bytes: Buffer.from('{}'),
    });
    await expectMalformed(await connection.answer(), '{"a":');
    await connection.closed();
  });

  test('a request hidden in the body of another is only a body', async () => {
    const hidden = `${head([authorized(), 'Content-Length: 2'])}{}`;
    const answer = await onlyAnswer(
      `${head([authorized(), `Content-Length: ${hidden.length}`, 'Connection: close'])}${hidden}`,
    );
    await expectMalformed(answer, hidden);
  });
});

describe('a partner that goes away', () => {
  test('half-closing in the middle of the body still reads the 400', async () => {
    const connection = await openRaw(ingest.url);
    connection.socket.end(`${head([authorized(), 'Content-Length: 100'])}{"a":1`);
    await expectMalformed(await connection.answer(), '{"a":1');
    await connection.closed();
  });

  test.each([
    ['closing', false],
    ['resetting', true],
  ])('%s the connection leaves a malformed record with what came', async (_name, reset) => {
    const before = await world.metric(ingest, 'partner_ingest_limiter_decisions_total');
    const userAgent = `gone-${reset}`;
    const connection = await openRaw(ingest.url);
    connection.write(`${head([authorized(), 'Content-Length: 100', `User-Agent: ${userAgent}`])}{"a":1`);
    await eventually(
      'the door to read the body',
      async () => (await world.metric(ingest, 'partner_ingest_limiter_decisions_total')) > before,
    );
    if (reset) connection.socket.resetAndDestroy();
    else connection.socket.destroy();
    const [record] = await eventually('the record', async () => {
      const found = await world.records({ userAgent });
      return found.length > 0 && found;
    });
    const id = record?._id ?? '';
    recorded.add(id);
    await expectRecord(world, id, {
      state: 'malformed',
      httpStatus: 400,
      partnerId: 'demo',
      userAgent,
      bytes: Buffer.from('{"a":1'),
    });
  });
});

describe('a partner that is slow', () => {
  test('with a body nobody wants is answered after 5 s', async () => {
    const { answer, afterMs } = await slow.refusedBody;
    const id = expectAnswer(answer, 401, bodies.keyMissing);
    recorded.add(id);
    await expectRecord(world, id, { state: 'refused', httpStatus: 401 });
    expect(answer.headers['connection']).toBe('close');
    expect(afterMs).toBeGreaterThan(4_900);
    expect(afterMs).toBeLessThan(7_000);
  });

  test('with the rest of a body that is too large is answered after 5 s', async () => {
    const { answer, afterMs } = await slow.largeBody;
    const id = expectAnswer(answer, 400, bodies.tooLarge);
    recorded.add(id);
    await expectRecord(world, id, {
      state: 'malformed',
      httpStatus: 400,
      partnerId: 'demo',
      bytes: Buffer.alloc(65_000, 'x'),
      bodyBytes: 66_000,
    });
    expect(afterMs).toBeLessThan(7_000);
  });

  test('with its headers is answered after 10 s', async () => {
    const { answer, afterMs } = await slow.headers;
    expect(await world.record(expectAnswer(answer, 400, bodies.brokenRequest))).toBeNull();
    expect(afterMs).toBeGreaterThan(9_900);
    expect(await broken('too_slow')).toBe(1);
  });

  test('with its body is answered after 10 s, and what came is on record', async () => {
    const { answer, afterMs } = await slow.body;
    await expectMalformed(answer, '{"a":');
    expect(answer.headers['connection']).toBe('close');
    expect(afterMs).toBeGreaterThan(9_900);
  });

  test('with every byte of its body is, too: dripping buys no time', async () => {
    const { answer, afterMs } = await slow.drip;
    const id = expectAnswer(answer, 400, bodies.notAnObject);
    recorded.add(id);
    const record = await world.record(id);
    expect(record).toMatchObject({ state: 'malformed', httpStatus: 400, partnerId: 'demo' });
    expect(record?.bodyBytes).toBeGreaterThan(10);
    expect(Buffer.from(record?.body?.value() ?? []).toString()).toBe('{'.repeat(record?.bodyBytes ?? 0));
    expect(afterMs).toBeLessThan(SLOW_MS);
  });
});
