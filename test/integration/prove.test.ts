/** The file that proves an installation (docs/prove.mjs), and the audit of its history. */
import { createServer, request as requestTo, type Server } from 'node:http';
import { copyFile, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { text as textOf } from 'node:stream/consumers';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { newApiKey } from '../../internal/partner/api-key.ts';
import { MODE_ANNOTATION } from '../../internal/partner/key-terms.ts';
import { endOf } from '../../tools/program.ts';
import { ROOT } from '../../tools/root.ts';
import { cliOf } from '../support/cli.ts';
import { folderOfFile } from '../support/folder.ts';
import { listen } from '../support/listen.ts';
import { HANG_MS } from '../support/wait.ts';
import { worldOf } from '../support/world.ts';

const key = newApiKey({ test: true });
const { world, ingest } = await worldOf(['ingest', 'processor'], {
  partners: [
    { partner: 'demo', name: 'tests', keys: [key], annotations: { [MODE_ANNOTATION]: 'test' } },
  ],
});
const folder = folderOfFile();
const cli = cliOf(world);
const records = world.stores.requests;
const servers: Server[] = [];
afterAll(() => servers.forEach((server) => server.close()));

interface View {
  readonly accepted: number;
  readonly unknown: number;
  readonly findings: readonly { readonly kind: string; readonly ids: readonly string[] }[];
}

async function prove(url: string, name: string, more: Readonly<Record<string, string>> = {}) {
  const file = join(folder, `${name}.jsonl`);
  const env = { BASE_URL: `${url}/api/v1`, API_KEY: key, FILE: file, SECONDS: '4', ...more };
  const ended = await endOf(process.execPath, [`${ROOT}docs/prove.mjs`], {
    env: { PER_MINUTE: '1200', ...env },
    timeoutMs: 3 * HANG_MS,
  });
  return { ...ended, file };
}

/** Kinds of findings and their ids. */
async function auditOf(file: string): Promise<Record<string, readonly string[]>> {
  const { json, code } = await cli('audit', '--history', file, '--json');
  const { findings } = json<View>();
  expect(code).toBe(findings.length === 0 ? 0 : 1);
  return Object.fromEntries(findings.map(({ kind, ids }) => [kind, ids]));
}

/** A proxy that changes answers to submissions, or cuts them. */
async function proxyOf(change: (n: number, text: string) => string | undefined): Promise<string> {
  let posts = 0;
  const server = createServer((request, response) => {
    const { method = '', url = '', headers } = request;
    const on = requestTo(ingest.url + url, { method, headers, agent: false }, (incoming) => {
      const { 'content-length': _, connection: __, ...kept } = incoming.headers;
      void textOf(incoming).then((text) => {
        const told = method === 'POST' ? change((posts += 1), text) : text;
        if (told === undefined) return request.socket.destroy();
        return response.writeHead(incoming.statusCode!, kept as never).end(told);
      });
    });
    on.on('error', () => request.socket.destroy());
    request.pipe(on);
  });
  servers.push(server);
  return `http://127.0.0.1:${await listen(server)}`;
}

let honest: Awaited<ReturnType<typeof prove>>;
let operations: { type: string; f: string; value: Record<string, string> }[];
beforeAll(async () => {
  honest = await prove(ingest.url, 'honest');
  const text = await readFile(honest.file, 'utf8');
  operations = text
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
}, 4 * HANG_MS);

test('an installation that tells the truth is proved, and the audit agrees', async () => {
  expect(honest).toMatchObject({ code: 0, out: expect.stringContaining('all agrees') });
  const accepted = operations.filter(({ type, f }) => type === 'ok' && f === 'submit');
  expect(accepted.length).toBeGreaterThan(20);
  expect(await auditOf(honest.file)).toEqual({});
  const { stdout } = await cli('audit', '--history', honest.file);
  expect(stdout).toMatch(new RegExp(`answered 202 +${accepted.length}\n`));
  expect(stdout).toContain('The history is true');
});

test('answers that are lost on the way are asked for again, with the same key', async () => {
  const url = await proxyOf((n, text) => (n % 5 === 0 ? undefined : text));
  const { code, out, file } = await prove(url, 'cut');
  expect({ code, out }).toMatchObject({ code: 0, out: expect.stringMatching(/[1-9]\d* repeats/) });
  expect(await auditOf(file)).toEqual({});
});

test('answers for others are found, by the program and by the audit', async () => {
  const url = await proxyOf((n, text) =>
    text.replaceAll(/req_\w+/g, `req_${String(n).padStart(26, '0')}`),
  );
  const { code, out, file } = await prove(url, 'lies');
  expect({ code, out }).toMatchObject({ code: 1, out: expect.stringContaining('is not found') });
  expect(Object.keys(await auditOf(file)).toSorted()).toEqual(['doubled_key', 'lost', 'not_found']);
});

test('the audit finds what the database contradicts', async () => {
  const ids = (type: string): string[] => [
    ...new Set(
      operations.flatMap(({ type: own, f, value }) =>
        own === type && f === 'submit' ? (value['xRequestId'] ?? []) : [],
      ),
    ),
  ];
  const [gone, other, withdrawn] = ids('ok');
  const [refused] = ids('fail');
  await records.deleteOne({ _id: gone! });
  await records.updateOne({ _id: other! }, { $set: { bodySha256: '0'.repeat(64) } });
  await records.updateOne({ _id: withdrawn! }, { $set: { state: 'withdrawn' } });
  await records.updateOne({ _id: refused! }, { $set: { state: 'completed' } });
  expect(await auditOf(honest.file)).toEqual({
    lost: [gone],
    altered: [other],
    not_processed: [withdrawn],
    processed_after_refusal: [refused],
  });
});

test.each([
  ['a line that is none', 'nonsense\n', 'line 2 is no operation of a history'],
  ['a line cut off', '{"index":1,"type":"inv', 'line 2 is no operation of a history'],
])('%s is named', async (_what, end, words) => {
  const file = join(folder, 'half.jsonl');
  await copyFile(honest.file, file);
  const [first] = (await readFile(file, 'utf8')).split('\n');
  await writeFile(file, `${first}\n${end}`);
  const { code, stderr } = await cli('audit', '--history', file);
  expect({ code, stderr }).toMatchObject({ code: 2, stderr: expect.stringContaining(words) });
});

test.each([
  ['without an answer', 1],
  ['that is empty', 0],
])('a history %s proves nothing', async (_what, lines) => {
  const file = join(folder, 'nothing.jsonl');
  const [first] = operations;
  await writeFile(file, `${JSON.stringify(first)}\n`.repeat(lines));
  const { code, stdout } = await cli('audit', '--history', file);
  expect({ code, stdout }).toMatchObject({
    code: 1,
    stdout: expect.stringContaining('It proves nothing'),
  });
});

test('look-ups that overlap may be answered in any order', async () => {
  const [first] = operations;
  const file = join(folder, 'overlap.jsonl');
  const line = (process: number, type: string, f: string, value: object) =>
    `${JSON.stringify({ ...first, process, type, f, time: 0, value })}\n`;
  const lookUp = (process: number, type: string, state?: string) =>
    line(process, type, 'look-up', { id: 'req_a', status: 200, state });
  const accepted = line(1, 'invoke', 'submit', {}) + line(1, 'ok', 'submit', { id: 'req_a' });
  const early = lookUp(2, 'invoke') + lookUp(3, 'invoke') + lookUp(3, 'ok', 'completed');
  await writeFile(file, accepted + early + lookUp(2, 'ok', 'processing'));
  expect(await auditOf(file)).toEqual({});
  const late = lookUp(4, 'invoke') + lookUp(4, 'ok', 'processing');
  await writeFile(file, accepted + early + lookUp(2, 'ok', 'processing') + late);
  expect(await auditOf(file)).toEqual({ end_changed: ['req_a'] });
});

test('a file that is not there is named', async () => {
  const { code, stderr } = await cli('audit', '--history', join(folder, 'none.jsonl'));
  expect({ code, stderr }).toMatchObject({ code: 2, stderr: expect.stringContaining('ENOENT') });
});

test.each([
  ['BASE_URL', { BASE_URL: 'http://127.0.0.1' }],
  ['API_KEY', { API_KEY: 'pik_live' }],
  ['SECONDS', { SECONDS: '0' }],
  ['PER_MINUTE', { PER_MINUTE: 'many' }],
])('a wrong %s is named, and nothing is sent', async (name, given) => {
  const { code, err } = await prove(ingest.url, 'wrong', given);
  expect({ code, err }).toMatchObject({ code: 2, err: expect.stringContaining(`${name} must be`) });
});
