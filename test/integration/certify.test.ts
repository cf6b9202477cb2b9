/** The file that partners run first (docs/certify.mjs): the service, real and careless proxies. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, request as requestTo, type Server, type ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text as textOf } from 'node:stream/consumers';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { installHaproxy } from '../../deploy/local/stores/install.ts';
import { startProcess, type ServerProcess } from '../../deploy/local/stores/process.ts';
import { inRoot } from '../../deploy/local/stores/root.ts';
import { freePort } from '../../deploy/local/stores/wait.ts';
import { testEndings } from '../../internal/application/sandbox-endings.ts';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { MODE_ANNOTATION } from '../../internal/partner/key-terms.ts';
import { endOf } from '../../tools/program.ts';
import { ROOT } from '../../tools/root.ts';
import { listen } from '../support/listen.ts';
import { eventually, HANG_MS } from '../support/wait.ts';
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
const folder = mkdtempSync(join(tmpdir(), 'certify-'));
const servers: Server[] = [];
const running = new Map<string, ReturnType<typeof certify>>();
let haproxy: ServerProcess;

const HTML = '<html>Sorry</html>';
const error = (answer: Answer): boolean => answer.status >= 400;

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
  'cuts idle connections': [{ idleMs: 1_000 }, { idle: 'it was closed' }],
  'buffers bodies': [{ buffers: true }, { early: 'answered none (' }],
  'limits bodies': [{ maxBytes: 32_768 }, { largest: 'answered 413, not 202' }],
  'rewrites 429': [
    { answer: (answer) => (answer.status === 429 ? { ...answer, status: 503 } : answer) },
    { '000000429': 'answered 503, not 429' },
  ],
  'replaces error pages': [
    {
      answer: (answer) =>
        error(answer) ? { ...answer, headers: { ...answer.headers }, text: HTML } : answer,
    },
    { '000000500': 'the body of the 500 cannot be read: SyntaxError' },
  ],
  redirects: [
    { answer: (answer) => ({ ...answer, status: 301, headers: { location: ingest.url } }) },
    { '000000000': 'answered 301, not 202' },
  ],
  'halves bodies': [
    { answer: (answer) => ({ ...answer, text: answer.text.slice(0, 20) }) },
    { '000000000': 'the body of the 202 cannot be read: SyntaxError' },
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

async function startHaproxy(): Promise<string> {
  const [root, port] = [await installHaproxy(() => undefined), await freePort()];
  const data = join(folder, 'data');
  mkdirSync(data);
  const config = `defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
listen partners
  bind 127.0.0.1:${port}
  server ingest ${new URL(ingest.url).host}
`;
  writeFileSync(join(data, 'haproxy.cfg'), config);
  const command = inRoot(root, data, 'root', ['haproxy', '-db', '-f', '/data/haproxy.cfg']);
  haproxy = await startProcess({ command, logFile: join(folder, 'log'), wrapped: true });
  const url = `http://127.0.0.1:${port}`;
  await eventually('HAProxy', async () => (await fetch(url)).status === 404);
  return url;
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
  const proxied = await startHaproxy();
  running.set('directly', certify(ingest.url));
  running.set('through HAProxy', certify(proxied));
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
afterAll(async () => {
  for (const server of servers) {
    server.closeAllConnections();
    server.close();
  }
  await haproxy.end('SIGTERM');
  rmSync(folder, { recursive: true });
});

test.each(['directly', 'through HAProxy'])('%s every ending is as promised', async (name) => {
  const { code, rows } = await running.get(name)!;
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
