/** Runs the samples of docs/samples.md as printed, through a connection that loses an answer. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { endOf, type Ended } from '../../tools/program.ts';
import { send } from './http.ts';
import { listen } from './listen.ts';
import { read } from './pages.ts';
import { startTcpProxy, type TcpProxy } from './tcp-proxy.ts';
import { HANG_MS } from './wait.ts';
import { NO_REDIS, newApplication, openWorld, type InProcess, type World } from './world.ts';

const MAX_LINES = 40;
const ACCEPT_TIMEOUT_MS = 1_000;
/** Longer than the first wait of a sample, so that its second try is one too many. */
const WINDOW_SECONDS = 5;

/** The block below the heading `language`. */
function blockOf(language: string): string {
  const section = read('docs/samples.md').split(`\n## ${language}\n`)[1] ?? '';
  return /^```\w+\n([^]*?)\n```$/m.exec(section)?.[1] ?? '';
}

/** `program` runs `file`, which holds the block below `language`. */
export function testSample(language: string, file: string, program: string): void {
  const code = blockOf(language);
  let world: World;
  let database: TcpProxy;
  let ingest: InProcess;
  let limited: InProcess;
  let folder: string;

  beforeAll(async () => {
    world = await openWorld();
    database = await startTcpProxy(world.stores.mongodbUri);
    ingest = await world.start('ingest', {
      MONGODB_URI: database.url,
      ACCEPT_TIMEOUT_MS: String(ACCEPT_TIMEOUT_MS),
    });
    limited = await world.start('ingest', {
      // Without Redis there is one count; a slow Redis would switch between two.
      REDIS_URL: NO_REDIS,
      RATE_LIMIT_MAX: '1',
      RATE_LIMIT_WINDOW_SECONDS: String(WINDOW_SECONDS),
    });
    folder = mkdtempSync(join(tmpdir(), 'sample-'));
    writeFileSync(join(folder, file), code);
  });
  afterAll(async () => {
    await world.close();
    await database.close();
    rmSync(folder, { recursive: true });
  });

  async function run(
    baseUrl: string,
    body: string,
    key: string,
    apiKey = world.key,
  ): Promise<Ended> {
    const path = join(folder, `${key}.json`);
    writeFileSync(path, body);
    const ended = await endOf(program, [join(folder, file), path, key], {
      env: { PATH: process.env['PATH'], BASE_URL: `${baseUrl}/api/v1`, API_KEY: apiKey },
      timeoutMs: HANG_MS,
    });
    if (![0, 1, 2].includes(ended.code ?? -1)) console.log(ended.err);
    return ended;
  }

  /**
   * Runs the sample; with `loses` the first 202 is lost. Expects one record and its printed id.
   * Returns the status of each try.
   */
  async function throughTheLine(
    to: InProcess,
    key: string,
    options: { readonly loses: boolean; readonly onAnswer?: (status: number) => void },
  ): Promise<readonly (number | 'lost')[]> {
    const tries: { readonly sent: string; readonly met: number | 'lost' }[] = [];
    const pass = async (incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> => {
      const parts: Buffer[] = [];
      for await (const part of incoming) parts.push(part as Buffer);
      const body = Buffer.concat(parts).toString();
      const { authorization = '', 'idempotency-key': sent } = incoming.headers;
      const headers = { authorization, 'idempotency-key': String(sent) };
      const answer = await send(to.url, { body, headers });
      const lost =
        options.loses && answer.status === 202 && tries.every(({ met }) => met !== 'lost');
      tries.push({ sent: `${String(sent)} ${body}`, met: lost ? 'lost' : answer.status });
      options.onAnswer?.(answer.status);
      if (lost) incoming.socket.destroy();
      else outgoing.writeHead(answer.status, answer.headers).end(answer.text);
    };
    const line = createServer((incoming, outgoing) => {
      pass(incoming, outgoing).catch((error: Error) => outgoing.destroy(error));
    });
    const port = await listen(line);
    try {
      const body = JSON.stringify(newApplication());
      const { code: exit, out } = await run(`http://127.0.0.1:${port}`, body, key);
      expect(exit).toBe(0);
      expect(new Set(tries.map(({ sent }) => sent)).size).toBe(1);
      expect(tries[0]?.sent).toContain(body);
      const records = await world.records({ state: { $ne: 'withdrawn' } });
      const held = records.filter((each) =>
        Buffer.from(each.body?.value() ?? []).equals(Buffer.from(body)),
      );
      expect(held.map(({ _id }) => _id)).toEqual([/req_\w+/.exec(out)?.[0]]);
      return tries.map(({ met }) => met);
    } finally {
      line.closeAllConnections();
      line.close();
    }
  }

  test(`the ${language} sample has at most ${MAX_LINES} lines`, () => {
    expect(code).not.toBe('');
    expect(code.split('\n').length).toBeLessThanOrEqual(MAX_LINES);
  });

  test(`the ${language} sample records an application once after a lost answer and a 429`, async () =>
    expect(await throughTheLine(limited, 'lost-1', { loses: true })).toEqual(['lost', 429, 202]));

  test(`the ${language} sample repeats after a 500`, async () => {
    database.holdRequests();
    const met = await throughTheLine(ingest, 'fails-1', {
      loses: false,
      onAnswer: (status) => {
        if (status === 500) database.pass();
      },
    });
    // A busy machine may cause a second 500.
    expect([met[0], met.at(-1)]).toEqual([500, 202]);
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
