/** Ingest against slow, broken and hostile HTTP. */
import { beforeAll, describe, expect, test } from '@jest/globals';
import type { ServiceProcess } from '../../deploy/local/processes.ts';
import {
  bodies,
  expectAnswer,
  expectRecord,
  head,
  openRaw,
  type ExpectedRecord,
  type RawConnection,
} from '../support/ingest.ts';
import { LIST_PATH } from '../../internal/ingest/contract.ts';
import { MAX_PIPELINED } from '../../internal/ingest/bounds.ts';
import { INGEST_PATH, send, type Answer } from '../support/http.ts';
import { newRecord } from '../support/records.ts';
import { HANG_MS, HEAL_HANG_MS, eventually } from '../support/wait.ts';
import { worldOf } from '../support/world.ts';
import { LIST_PAGE } from '../../internal/submission/status-reader.ts';

type Slow = 'headers' | 'second' | 'drip';

const { world, ingest } = await worldOf(['ingest']);
/** Begun together, because each takes seconds. */
let slow: Record<Slow, Promise<Answer>>;
/** What clients read that sent only these bytes. */
let unasked: Promise<readonly string[]>;
const recorded = new Set<string>();

beforeAll(() => {
  slow = {
    headers: begin(`POST ${INGEST_PATH} HTTP/1.1\r\nHost: ingest.test\r\nX-Slow: `),
    second: answered(HEAD_404).then((connection) => lastAnswer(connection, 'P')),
    drip: begin(CHUNKED, (connection) => connection.write('1\r\n{\r\n')),
  };
  unasked = Promise.all(['', '\r\n', '\r\n\r\n\n'].map(readUnasked));
  for (const one of [...Object.values(slow), unasked]) one.catch(() => {});
});

const authorized = `Authorization: Bearer ${world.key}`;
const post = (...lines: readonly string[]): string => `${head([authorized, ...lines])}{}`;
const WHOLE = post('Content-Length: 2');
const CHUNKED = head([authorized, 'Transfer-Encoding: chunked']);
const hostIs = (host: string): string => WHOLE.replace('Host: ingest.test', `Host: ${host}`);
const chunkedAs = (coding: string, version = '1.1'): string => {
  const lines = [authorized, `Transfer-Encoding: ${coding}`];
  return `${head(lines, `POST ${INGEST_PATH} HTTP/${version}`)}2\r\n{}\r\n0\r\n\r\n`;
};

const HEAD_404 = head([], 'GET / HTTP/1.1');

async function answered(bytes: string): Promise<RawConnection> {
  const connection = await openRaw(ingest.url);
  connection.write(bytes);
  await connection.answer();
  return connection;
}

async function readUnasked(bytes: string): Promise<string> {
  const connection = await openRaw(ingest.url);
  connection.write(bytes);
  await connection.closed(HANG_MS);
  return connection.text();
}

const begin = async (
  ...[bytes, everyNowAndThen]: [string, ((connection: RawConnection) => void)?]
): Promise<Answer> => lastAnswer(await openRaw(ingest.url), bytes, everyNowAndThen);

async function lastAnswer(
  connection: RawConnection,
  bytes: string,
  everyNowAndThen?: (connection: RawConnection) => void,
): Promise<Answer> {
  connection.write(bytes);
  const timer = setInterval(() => everyNowAndThen?.(connection), 500);
  try {
    const answer = await connection.answer(HANG_MS);
    await connection.closed();
    return answer;
  } finally {
    clearInterval(timer);
    connection.socket.destroy();
  }
}

/** Expects one answer and then the end of the connection. */
async function onlyAnswer(...writes: readonly (string | Uint8Array)[]): Promise<Answer> {
  const connection = await openRaw(ingest.url);
  for (const bytes of writes) connection.write(bytes);
  const answer = await connection.answer();
  await connection.closed();
  expect(connection.text().match(/HTTP\/1\.1 /g)).toHaveLength(1);
  return answer;
}

/** Returns once ingest has begun to read the request. */
async function bodyBegun(bytes: string): Promise<RawConnection> {
  const read = (): Promise<number> =>
    world.metric(ingest, 'partner_ingest_limiter_decisions_total');
  const before = await read();
  const connection = await openRaw(ingest.url);
  connection.write(bytes);
  await eventually('ingest to read the body', async () => (await read()) > before);
  return connection;
}

/** Expects the answer and the stored text. */
async function expectKept(
  answer: Answer,
  words: (id: string) => string,
  record: ExpectedRecord,
): Promise<void> {
  const id = expectAnswer(answer, record.httpStatus, words);
  recorded.add(id);
  await expectRecord(world, id, { partnerId: 'demo', ...record });
}

const expectAccepted = (answer: Answer): Promise<void> =>
  expectKept(answer, bodies.accepted, {
    state: 'recorded',
    httpStatus: 202,
    bytes: Buffer.from('{}'),
  });

const expectMalformed = (answer: Answer, bytes: string | Uint8Array): Promise<void> =>
  expectKept(answer, bodies.notAnObject, {
    state: 'malformed',
    httpStatus: 400,
    bytes: Buffer.from(bytes),
  });

const broken = (kind: string): Promise<number> =>
  world.metric(ingest, 'partner_ingest_broken_http_total', { kind });

/** On a busy machine bytes that come late may be counted, too. */
const becomesBroken = (kind: string, count: number): Promise<unknown> =>
  eventually(`${count} ${kind}`, async () => (await broken(kind)) >= count);

describe('what is no HTTP', () => {
  test.each<[name: string, bytes: string | Uint8Array, kind: string]>([
    ['TLS', Buffer.from('16030100c8010000c40303', 'hex'), 'not_http'],
    ['the preface of HTTP/2', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 'not_http'],
    ['a blank before a colon', post('Content-Length : 2'), 'not_http'],
    ['a NUL in a header', post('X-Nul: a\0b', 'Content-Length: 2'), 'not_http'],
    ['100 headers', post(...Array.from({ length: 98 }, () => 'a: b')), 'headers_too_large'],
    ['a path of 20 kB', head([], `POST /${'x'.repeat(20_000)} HTTP/1.1`), 'headers_too_large'],
    ['a length and chunks', post('Content-Length: 2', 'Transfer-Encoding: chunked'), 'not_http'],
    ['the same Content-Length twice', post('Content-Length: 2', 'Content-Length: 2'), 'not_http'],
    ['a negative Content-Length', post('Content-Length: -2'), 'not_http'],
    ['HTTP/2.0 in the request line', head([], `POST ${INGEST_PATH} HTTP/2.0`), 'bad_version'],
    ['two Hosts', post('Host: ingest.test', 'Content-Length: 2'), 'bad_host'],
    ['a Host that is a URL', hostIs('http://ingest.test'), 'bad_host'],
    ['a Host whose port is none', hostIs('ingest.test:http'), 'bad_host'],
    ['Transfer-Encoding in HTTP/1.0', chunkedAs('chunked', '1.0'), 'bad_transfer_encoding'],
    ['Transfer-Encoding: gzip, chunked', chunkedAs('gzip, chunked'), 'bad_transfer_encoding'],
    ['no Host', `POST ${INGEST_PATH} HTTP/1.1\r\nContent-Length: 0\r\n\r\n`, 'no_host'],
  ])('%s is answered 400, counted and not recorded', async (_name, bytes, kind) => {
    const before = await broken(kind);
    const answer = await onlyAnswer(bytes);
    expect(await world.record(expectAnswer(answer, 400, bodies.brokenRequest))).toBeNull();
    expect(answer.headers['connection']).toBe('close');
    expect(new Date(answer.headers['date'] ?? '').getTime()).toBeGreaterThan(Date.now() - 60_000);
    await becomesBroken(kind, before + 1);
  });
});

describe('framing that breaks after the headers', () => {
  test('after a whole request, that request keeps its own answer', async () => {
    // A Content-Length that is too short leaves such bytes over.
    for (const garbage of ['garbage\r\n\r\n', '{"left":"over"}']) {
      const before = await broken('not_http');
      await expectAccepted(await onlyAnswer(WHOLE + garbage));
      await becomesBroken('not_http', before + 1);
    }
  });

  test.each<[name: string, rest: string, kept: string]>([
    ['a chunk size that is none', '5\r\n{"a":\r\nZZ\r\n', '{"a":'],
    ['a chunk longer than its size', '5\r\n{"a":1}\r\n0\r\n\r\n', '{"a":'],
    ['a chunk size beyond 64 bits', '5\r\n{"a":\r\nfffffffffffffffff\r\n', '{"a":'],
    ['chunk extensions of 20 kB', `5\r\n{"a":\r\n1;${'x'.repeat(20_000)}\r\n`, '{"a":'],
  ])(
    '%s is answered 400 and recorded as far as it came, in one packet or two',
    async (_name, rest, kept) => {
      await expectMalformed(await onlyAnswer(CHUNKED + rest), kept);
      const connection = await bodyBegun(CHUNKED);
      connection.write(rest);
      await expectMalformed(await connection.answer(), kept);
      await connection.closed();
    },
  );

  test('in the second of two pipelined requests, each keeps its own answer and record', async () => {
    const connection = await openRaw(ingest.url);
    connection.write(`${WHOLE}${CHUNKED}5\r\n{"a":\r\nZZ\r\n`);
    await expectAccepted(await connection.answer());
    await expectMalformed(await connection.answer(), '{"a":');
    await connection.closed();
  });
});

test.each(['h2c', 'websocket', 'TLS/1.0, HTTP/1.1'])(
  'one with Upgrade: %s is answered, and says that the connection ends with it',
  async (protocol) => {
    const connection = await openRaw(ingest.url);
    const upgrade = ['Connection: Upgrade, HTTP2-Settings', `Upgrade: ${protocol}`];
    const first = head([authorized, 'Content-Length: 2', ...upgrade, 'HTTP2-Settings: AAMA']);
    connection.write(`${first}{}${WHOLE}`);
    const answer = await connection.answer();
    await expectAccepted(answer);
    expect(answer.headers['connection']).toBe('close');
    await connection.closed();
  },
);

describe('a partner that goes away', () => {
  test('if it half-closes in the middle of the body, it still reads the 400', async () => {
    const connection = await openRaw(ingest.url);
    connection.socket.end(`${head([authorized, 'Content-Length: 100'])}{"a":1`);
    await expectMalformed(await connection.answer(), '{"a":1');
    await connection.closed();
  });

  test('resetting the connection leaves a malformed record with what came', async () => {
    const userAgent = 'gone';
    const connection = await bodyBegun(
      `${head([authorized, 'Content-Length: 100', `User-Agent: ${userAgent}`])}{"a":1`,
    );
    connection.socket.resetAndDestroy();
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

describe('a connection that is reset', () => {
  let own: ServiceProcess;
  beforeAll(async () => {
    own = await world.spawn('ingest', { TRUSTED_PROXIES: '127.0.0.1/32' });
  });

  /** Expects that the process serves and has logged no error. */
  async function expectWell(): Promise<void> {
    await expectAccepted(await send(own.url, { key: world.key, body: '{}' }));
    expect(own.child.exitCode).toBeNull();
    expect(own.lines.filter((line) => /"level":"(error|fatal)"/.test(line))).toEqual([]);
  }

  test.each([
    ['nothing', ''],
    ['a request answered 404', 'GET /nothing HTTP/1.1\r\nHost: ingest.test\r\n\r\n'],
    ['a request answered 401', `${head(['Content-Length: 2'])}{}`],
  ])('at a CONNECT behind %s ends no process', async (_name, before) => {
    const connect = 'CONNECT ingest.test:1 HTTP/1.1\r\nHost: ingest.test\r\n\r\n';
    for (let tries = 0; tries < 20; tries += 1) {
      const { socket } = await openRaw(own.url);
      await new Promise((written) => void socket.write(before + connect, written));
      socket.resetAndDestroy();
    }
    await expectWell();
  });

  test.each([[[]], [['X-Forwarded-For: 192.0.2.1']]])(
    'before ingest accepts it, with the headers %j, leaves no record',
    async (lines) => {
      own.child.kill('SIGSTOP');
      for (let tries = 0; tries < 20; tries += 1) {
        const { socket } = await openRaw(own.url);
        const request = `${head([authorized, 'Content-Length: 2', ...lines])}{}`;
        await new Promise((written) => void socket.write(request, written));
        socket.resetAndDestroy();
      }
      own.child.kill('SIGCONT');
      await expectWell();
    },
  );
});

describe('a partner that is slow', () => {
  test('with its headers gets a 408', async () => {
    for (const one of [slow.headers, slow.second]) {
      const answer = await one;
      expect(await world.record(expectAnswer(answer, 408, bodies.tooSlow))).toBeNull();
      expect(answer.headers['connection']).toBe('close');
    }
    await becomesBroken('too_slow', 2);
  });

  test('with its body gets a 408, and the bytes so far are recorded', async () => {
    const answer = await slow.drip;
    const id = expectAnswer(answer, 408, bodies.bodyTooSlow);
    recorded.add(id);
    const record = await world.record(id);
    expect(record).toMatchObject({ state: 'malformed', httpStatus: 408, partnerId: 'demo' });
    expect(record?.bodyBytes).toBeGreaterThan(10);
    expect(Buffer.from(record?.body?.value() ?? []).toString()).toBe(
      '{'.repeat(record?.bodyBytes ?? 0),
    );
  });

  test('to read its answers loses its connection', async () => {
    const listed = Array.from({ length: LIST_PAGE }, () => newRecord());
    await world.stores.requests.insertMany(listed);
    for (const { _id } of listed) recorded.add(_id);
    const count = (name: string, labels: Readonly<Record<string, string>>): Promise<number> =>
      world.metric(ingest, `partner_ingest_${name}_total`, labels);
    const connection = await openRaw(ingest.url);
    connection.socket.pause();
    const list = head([authorized], `GET ${LIST_PATH} HTTP/1.1`);
    // On a busy machine some are answered 503.
    const before = await count('requests', {});
    let sent = 0;
    // The buffers of the kernels take megabytes of answers before ingest keeps one.
    const isClosed = async (): Promise<boolean> => {
      if ((await count('requests', {})) - before === sent) {
        connection.write(list.repeat(MAX_PIPELINED));
        sent += MAX_PIPELINED;
      }
      return (await count('broken_http', { kind: 'answer_unread' })) === 1;
    };
    await eventually('it to be closed', isClosed, HEAL_HANG_MS);
    connection.socket.destroy();
  });
  test('before its request is closed without a byte', async () => {
    expect(await unasked).toEqual(['', '', '']);
  });
});

test('no other request of these tests has a record', async () => {
  const kept = await world.records({ state: { $ne: 'refused' } });
  expect(kept.map(({ _id }) => _id).toSorted()).toEqual([...recorded].toSorted());
});
