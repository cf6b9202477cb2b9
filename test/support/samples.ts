/** Runs the samples in docs/samples; endings of a test key certify them. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { MODE_ANNOTATION } from '../../internal/partner/key-terms.ts';
import { endOf, type Ended } from '../../tools/program.ts';
import { ROOT } from '../../tools/root.ts';
import { folderOfFile } from './folder.ts';
import { send } from './http.ts';
import { listen } from './listen.ts';
import { read } from './pages.ts';
import { newRecord } from './records.ts';
import { eventually, HANG_MS } from './wait.ts';
import { NO_REDIS, newApplication, requestIdOf, worldOf, type InProcess } from './world.ts';

const MAX_LINES = 40;
/** Longer than the first wait of a sample, so that its second try is one too many. */
const WINDOW_SECONDS = 5;
/** Makes more than one page of the list. */
const MORE_THAN_A_PAGE = 101;

const pathOf = (file: string): string => join(ROOT, 'docs/samples', file);

/** `program` runs the files. */
export async function testSample(
  language: string,
  [submitFile, listFile, followFile]: readonly [string, string, string],
  program: string,
): Promise<void> {
  const testKey = newApiKey({ test: true });
  const sent: string[] = [];
  const annotations = { [MODE_ANNOTATION]: 'test' };
  const { world, ingest } = await worldOf(['ingest'], {
    partners: [{ partner: 'demo', name: 'tests', keys: [testKey], annotations }],
  });
  const limited = await world.start('ingest', {
    // Without Redis there is one count; a slow Redis would switch between two.
    REDIS_URL: NO_REDIS,
    RATE_LIMIT_MAX: '1',
    RATE_LIMIT_WINDOW_SECONDS: String(WINDOW_SECONDS),
  });
  const folder = folderOfFile();

  async function run(
    baseUrl: string,
    body: string,
    key: string,
    apiKey = world.key,
    file = submitFile,
  ): Promise<Ended> {
    const path = join(folder, `${key}.json`);
    writeFileSync(path, body);
    const ended = await endOf(program, [pathOf(file), path, key], {
      env: { PATH: process.env['PATH'], BASE_URL: `${baseUrl}/api/v1`, API_KEY: apiKey },
      timeoutMs: HANG_MS,
    });
    if (![0, 1, 2].includes(ended.code ?? -1)) console.log(ended.err);
    return ended;
  }

  /**
   * Runs the sample with a test key. Expects one record, found by the key, and its printed id.
   * Returns the status of each try.
   */
  async function throughTheLine(to: InProcess, ein: string): Promise<readonly (number | 'none')[]> {
    const tries: { readonly sent: string; readonly met: number | 'none' }[] = [];
    const pass = async (incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> => {
      const parts: Buffer[] = [];
      for await (const part of incoming) parts.push(part as Buffer);
      const body = Buffer.concat(parts).toString();
      const { authorization = '', 'idempotency-key': key } = incoming.headers;
      const headers = { authorization, 'idempotency-key': String(key) };
      const answer = await send(to.url, { body, headers }).catch(() => undefined);
      tries.push({ sent: `${String(key)} ${body}`, met: answer?.status ?? 'none' });
      if (answer === undefined) incoming.socket.destroy();
      else outgoing.writeHead(answer.status, answer.headers).end(answer.text);
    };
    const line = createServer((incoming, outgoing) => {
      pass(incoming, outgoing).catch((error: Error) => outgoing.destroy(error));
    });
    const port = await listen(line);
    try {
      const key = `key-of-${ein}`;
      const body = JSON.stringify({ ...newApplication(), ein });
      const { code: exit, out } = await run(`http://127.0.0.1:${port}`, body, key, testKey);
      expect(exit).toBe(0);
      expect(new Set(tries.map((each) => each.sent))).toEqual(new Set([`"${key}" ${body}`]));
      const id = /req_\w+/.exec(out)?.[0] ?? '';
      sent.push(id);
      const path = `/api/v1/capital/submissions?idempotency_key=${key}`;
      const { json } = await send(ingest.url, { method: 'GET', path, key: testKey });
      expect(json).toMatchObject({ data: { submissions: [{ request_id: id }] } });
      const records = await world.records({ state: { $ne: 'withdrawn' } });
      const held = records.filter((each) =>
        Buffer.from(each.body?.value() ?? []).equals(Buffer.from(body)),
      );
      expect(held.map(({ _id }) => _id)).toEqual([id]);
      return tries.map(({ met }) => met);
    } finally {
      line.closeAllConnections();
      line.close();
    }
  }

  test(`the ${language} samples have at most ${MAX_LINES} lines`, () => {
    for (const file of [submitFile, listFile, followFile]) {
      expect(read('docs/samples.md')).toContain(`](samples/${file})`);
      expect(read(`docs/samples/${file}`).split('\n').length).toBeLessThanOrEqual(MAX_LINES + 1);
    }
  });

  test(`the ${language} sample records an application once after a lost answer and a 429`, async () =>
    expect(await throughTheLine(limited, '000000007')).toEqual(['none', 429, 202]));

  test(`the ${language} sample repeats after a 500 until it succeeds`, async () =>
    expect(await throughTheLine(ingest, '000000501')).toEqual([500, 500, 202]));

  test(`the ${language} sample reads the list to its end`, async () => {
    const posts = Array.from({ length: MORE_THAN_A_PAGE }, () =>
      send(ingest.url, { key: testKey, body: JSON.stringify(newApplication()) }),
    );
    sent.push(...(await Promise.all(posts)).map(requestIdOf));
    const { code, out } = await run(ingest.url, '', 'list', testKey, listFile);
    expect(code).toBe(0);
    expect(new Set(out.match(/req_\w+/g))).toEqual(new Set(sent));
    expect(await run(ingest.url, '', 'none', 'pik_nobody', listFile)).not.toMatchObject({
      code: 0,
    });
  });

  test(`the ${language} sample follows outcomes, and goes on where it was stopped`, async () => {
    const insert = async (count: number): Promise<string[]> => {
      const ended = { test: true, state: 'completed', stateAt: new Date() } as const;
      const records = Array.from({ length: count }, () => newRecord(ended));
      await world.stores.requests.insertMany(records);
      return records.map(({ _id }) => _id).toSorted();
    };
    const follow = async (all: readonly string[], url = ingest.url): Promise<void> => {
      const env = { PATH: process.env['PATH'], BASE_URL: `${url}/api/v1`, API_KEY: testKey };
      const cursorFile = join(folder, 'cursor');
      const stdio = ['ignore', 'pipe', 'inherit'] as const;
      const child = spawn(program, [pathOf(followFile), cursorFile], { env, stdio: [...stdio] });
      let out = '';
      child.stdout.on('data', (part: Buffer) => (out += String(part)));
      const ids = (): string[] => (out.match(/req_\w+/g) ?? []).toSorted();
      try {
        await eventually('all outcomes', () => ids().length >= all.length);
        expect(ids()).toEqual(all);
        await eventually('the cursor behind them', async () => {
          const cursor = readFileSync(cursorFile, 'utf8');
          const path = `/api/v1/capital/outcomes?cursor=${cursor}`;
          const { text } = await send(ingest.url, { method: 'GET', path, key: testKey });
          return text.includes('"outcomes":[]');
        });
      } finally {
        child.kill('SIGKILL');
        await once(child, 'close');
      }
    };
    await follow(await insert(MORE_THAN_A_PAGE));
    // The first answer is cut off, as when a proxy or a pod dies.
    let asked = 0;
    const line = createServer(({ url: path = '' }, outgoing) => {
      asked += 1;
      if (asked === 1) {
        outgoing.writeHead(200, { 'content-length': 1_000 }).write('{"data":{"outcomes":[');
        setImmediate(() => outgoing.destroy());
      } else
        void send(ingest.url, { method: 'GET', path, key: testKey }).then(({ status, text }) =>
          outgoing.writeHead(status).end(text),
        );
    });
    try {
      await follow(await insert(1), `http://127.0.0.1:${await listen(line)}`);
    } finally {
      line.closeAllConnections();
      line.close();
    }
    expect(await run(ingest.url, '', 'nobody', 'pik_nobody', followFile)).not.toMatchObject({
      code: 0,
    });
  });

  test(`the ${language} sample reports a refusal and does not repeat`, async () => {
    const body = JSON.stringify(newApplication());
    expect(await run(ingest.url, body, 'once')).toMatchObject({ code: 0 });
    const refused = [
      await run(ingest.url, '[]', 'array'),
      await run(ingest.url, body, 'unknown', 'pik_nobody_has_this_key_0000000000000000'),
      await run(ingest.url, body, 'dormant', world.inactiveKey),
      await run(ingest.url, JSON.stringify(newApplication()), 'once'),
    ];
    expect(refused.map((each) => each.code)).toEqual([1, 1, 1, 1]);
    const statuses = refused.map(({ err }) => /\b(400|401|403|422)\b/.exec(err)?.[1]);
    expect(statuses).toEqual(['400', '401', '403', '422']);
    const count = await world.metric(ingest, 'partner_ingest_requests_total', { status: '422' });
    expect(count).toBe(1);
  });
}
