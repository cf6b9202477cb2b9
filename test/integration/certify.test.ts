/** The file that partners run first (docs/certify.mjs): the service, and careless proxies. */
import { createServer, request as requestTo, type Server, type ServerResponse } from 'node:http';
import { text as textOf } from 'node:stream/consumers';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { testEndings } from '../../internal/application/sandbox-endings.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { MODE_ANNOTATION } from '../../internal/partner/key-terms.ts';
import { endOf } from '../../tools/program.ts';
import { ROOT } from '../../tools/root.ts';
import { listen } from '../support/listen.ts';
import { HANG_MS } from '../support/wait.ts';
import { worldOf } from '../support/world.ts';

interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly text: string;
}
/** What a proxy does to requests and answers. */
interface Change {
  readonly drops?: readonly string[];
  readonly buffers?: true;
  /** Cuts a wait after so long. */
  readonly cutsMs?: number;
  /** Closes a connection that was idle so long. */
  readonly idleMs?: number;
  readonly maxBytes?: number;
  readonly answer?: (answer: Answer) => Answer;
}

const key = newApiKey({ test: true });
const annotations = { [MODE_ANNOTATION]: 'test' };
const { world, ingest } = await worldOf(['ingest', 'processor'], {
  partners: [{ partner: 'demo', name: 'tests', keys: [key], annotations }],
});
const servers: Server[] = [];
const running = new Map<string, ReturnType<typeof certify>>();

/** Each proxy with the rows that tell what it does. */
const changes: Record<string, [Change, rows: Record<string, string>]> = {
  'drops headers of requests': [
    { drops: ['idempotency-key', 'prefer'] },
    {
      '000000000': 'look-up: preference-applied: null',
      '000000007': 'the list does not find the key',
    },
  ],
  'drops headers of answers': [
    {
      answer: ({ headers, ...answer }) => ({
        ...answer,
        headers: { 'content-type': headers['content-type'], 'retry-after': '' },
      }),
    },
    {
      '000000000': 'x-request-id: null; test-submission: null; location: null',
      '000000429': 'retry-after: ""',
    },
  ],
  'cuts waits': [{ cutsMs: 10_000 }, { '000000008': 'look-up: answered none (ECONNRESET after ' }],
  'cuts idle connections, buffers and limits bodies, and replaces errors': [
    {
      idleMs: 1_000,
      buffers: true,
      maxBytes: 62_000,
      answer: (answer) => {
        const status = answer.status === 429 ? 503 : answer.status;
        return status >= 400 ? { ...answer, status, text: '<html>Sorry</html>' } : answer;
      },
    },
    {
      idle: 'it was closed',
      early: 'answered none (',
      largest: 'answered 413, not 202',
      '000000429': 'answered 503, not 429',
      '000000500': 'the body of the 500 cannot be read: SyntaxError',
    },
  ],
  redirects: [
    { answer: (answer) => ({ ...answer, status: 301, headers: { location: ingest.url } }) },
    { '000000000': 'answered 301, not 202' },
  ],
  'answers for others': [
    {
      answer: (answer) => ({
        ...answer,
        text: answer.text.replaceAll(/req_\w+/g, 'req_00000000000000000000000000'),
      }),
    },
    { '000000000': ', in the body: "req_0000' },
  ],
  'draws on the terminal': [
    {
      answer: (answer) => ({
        ...answer,
        text: answer.text.replace('"completed"', '"\\u001b[2K\\nok"'),
      }),
    },
    { '000000000': 'look-up: "\\u001b[2K\\nok", not completed' },
  ],
};

/** Servers that are none of ours; each answers nothing as promised. */
const hostile: Record<string, (response: ServerResponse) => void> = {
  'is silent': () => undefined,
  'answers null': (response) => response.end('null'),
  'answers other shapes': (response) =>
    response.writeHead(202).end('{"message":1,"data":{"request_id":null,"submissions":"x"}}'),
  'sends a body without end': (response) => {
    const more = (): void => {
      while (response.write(' '.repeat(65_536)));
      response.once('drain', more);
    };
    more();
  },
  'stops in a body': (response) => void response.writeHead(202).write('{"message":'),
  'changes the protocol': (response) =>
    response.socket!.end('HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n\r\n'),
  'speaks no HTTP': (response) => response.socket!.end('nonsense\r\n\r\n'),
};

async function serve(server: Server): Promise<string> {
  servers.push(server);
  return `http://127.0.0.1:${await listen(server)}`;
}

function proxyWith(change: Change): Server {
  const server = createServer((request, response) => {
    const headers = { ...request.headers };
    for (const name of change.drops ?? []) delete headers[name];
    if (Number(headers['content-length'] ?? 0) > (change.maxBytes ?? Infinity)) {
      response.writeHead(413).end();
      return;
    }
    const { method = '', url = '' } = request;
    const on = requestTo(ingest.url + url, { method, headers, agent: false }, (incoming) => {
      const { 'content-length': _, connection: __, ...kept } = incoming.headers;
      void textOf(incoming).then((text) => {
        const answer = { status: incoming.statusCode!, headers: kept, text };
        const changed = change.answer?.(answer) ?? answer;
        const given = Object.entries(changed.headers).filter(([, value]) => value !== undefined);
        response.writeHead(changed.status, Object.fromEntries(given) as Record<string, string>);
        response.end(changed.text);
      });
    });
    on.on('error', () => request.socket.destroy());
    response.on('close', () => on.destroy());
    request.socket.setTimeout(headers['prefer'] === undefined ? 0 : (change.cutsMs ?? 0));
    const parts: Buffer[] = [];
    request.on('data', (part: Buffer) => {
      if (change.buffers) parts.push(part);
      else on.write(part);
    });
    request.on('end', () => on.end(Buffer.concat(parts)));
  });
  if (change.cutsMs !== undefined) server.on('timeout', (socket) => socket.resetAndDestroy());
  server.keepAliveTimeout = change.idleMs ?? 60_000;
  return server;
}

async function certify(
  url: string,
  given: Readonly<Record<string, string>> = {},
  rows: string[] = [],
) {
  const env = { BASE_URL: `${url}/api/v1`, API_KEY: key, WAIT_SECONDS: '20', ...given };
  const ended = await endOf(process.execPath, [`${ROOT}docs/certify.mjs`, ...rows], {
    env,
    timeoutMs: 3 * HANG_MS,
  });
  return { ...ended, rows: ended.out.trim().split('\n') };
}

beforeAll(async () => {
  running.set('directly', certify(ingest.url));
  for (const [name, [change, told]] of Object.entries(changes)) {
    const url = await serve(proxyWith(change));
    running.set(name, certify(url, {}, ['000000000', ...Object.keys(told)]));
  }
  for (const [name, answer] of Object.entries(hostile)) {
    const url = await serve(createServer((_request, response) => answer(response)));
    running.set(name, certify(url, { WAIT_SECONDS: '1', ANSWER_SECONDS: '2' }));
  }
  running.set('is not there', certify('http://127.0.0.1:1'));
  await Promise.all(running.values());
}, 4 * HANG_MS);
afterAll(() => {
  for (const server of servers) {
    server.closeAllConnections();
    server.close();
  }
});

// test/e2e runs it through the Ingress controller.
test('every ending is as promised', async () => {
  const { code, rows } = await running.get('directly')!;
  expect(rows.filter((row) => !row.endsWith('  ok'))).toEqual([
    `0 of ${rows.length - 1} rows differ`,
  ]);
  expect(rows.flatMap((row) => /^\d{9}/.exec(row) ?? [])).toEqual(
    [...testEndings.keys()].toSorted(),
  );
  expect(code).toBe(0);
});

test.each(Object.entries(changes))('it tells that a proxy %s', async (name, [, told]) => {
  const { code, rows } = await running.get(name)!;
  const faultOf = (wanted: string) => rows.find((row) => row.startsWith(wanted))!;
  for (const [row, fault] of Object.entries(told)) expect(faultOf(row)).toContain(fault);
  expect(faultOf('000000000').endsWith('  ok')).toBe(told['000000000'] === undefined);
  expect({ code, told: rows.length }).toEqual({
    code: 1,
    told: 1 + new Set(['000000000', ...Object.keys(told)]).size,
  });
});

test.each([...Object.keys(hostile), 'is not there'])(
  'it ends, with a fault in every row, where a server %s',
  async (name) => {
    const { code, err, rows } = await running.get(name)!;
    const { length } = rows.filter((row) => !row.endsWith('  ok'));
    expect({ code, err, last: rows.at(-1) }).toEqual({
      code: 1,
      err: '',
      last: `${length - 1} of ${length - 1} rows differ`,
    });
  },
);

test.each([
  ['a live key', { API_KEY: newApiKey() }, 'API_KEY must be a test key: pik_test_…'],
  ['no key', { API_KEY: '' }, 'API_KEY must be a test key: pik_test_…'],
  ['the whole path', { BASE_URL: 'http://h/api/v1/capital/ingest' }, 'BASE_URL must be a URL that'],
  ['a query', { BASE_URL: 'http://h/api/v1?x=/api/v1' }, 'BASE_URL must be a URL that'],
  ['a password', { BASE_URL: 'http://a:b@h/api/v1' }, 'BASE_URL must be a URL that'],
  ['a long wait', { WAIT_SECONDS: '31' }, 'WAIT_SECONDS must be 0 to 30'],
])('with %s it sends nothing', async (_name, given, sentence) => {
  const before = (await world.records()).length;
  const { code, err, rows } = await certify(ingest.url, given);
  expect({ code, rows }).toEqual({ code: 2, rows: [''] });
  expect(err).toContain(sentence);
  expect((await world.records()).length).toBe(before);
});
