/** One process makes a part of the cache while others wait; a dead process does not block them. */
import { mkdir, mkdtemp, readdir, readFile, rm, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { run } from '../../../tools/program.ts';

const CACHE = fileURLToPath(new URL('cache.ts', import.meta.url));
const TIMEOUT_MS = 60_000;
/** A process that asks for the part, and says whether it was the one that made it. */
const ASK = `
  import { writeFile } from 'node:fs/promises';
  import { setTimeout } from 'node:timers/promises';
  const { cached } = await import(process.argv[1]);
  let made = '';
  await cached('part', () => {}, async (path) => {
    made = 'made';
    await setTimeout(500);
    await writeFile(path, 'whole');
  });
  console.log(made);
`;

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'cache-'));
});
afterEach(() => rm(folder, { recursive: true }));

async function ask(): Promise<string> {
  const options = { env: { ...process.env, XDG_CACHE_HOME: folder }, timeoutMs: TIMEOUT_MS };
  const args = ['--input-type=module', '-e', ASK, CACHE];
  return (await run(process.execPath, args, options)).out.trim();
}

test(
  'of processes that ask together one makes the entry, and all get it',
  async () => {
    const answers = await Promise.all([ask(), ask(), ask()]);
    expect(answers.toSorted()).toEqual(['', '', 'made']);
    const parts = join(folder, 'partner-ingest', 'stores');
    expect(await readFile(join(parts, 'part'), 'utf8')).toBe('whole');
    expect((await readdir(parts)).toSorted()).toEqual(['part', 'unfinished']);
    expect(await readdir(join(parts, 'unfinished'))).toEqual([]);
  },
  TIMEOUT_MS,
);

test(
  'the leftovers of a dead process are removed',
  async () => {
    const parts = join(folder, 'partner-ingest', 'stores');
    await mkdir(parts, { recursive: true });
    await writeFile(join(parts, 'part.making'), '1');
    const longAgo = new Date(Date.now() - TIMEOUT_MS);
    await utimes(join(parts, 'part.making'), longAgo, longAgo);
    expect(await ask()).toBe('made');
    expect((await readdir(parts)).toSorted()).toEqual(['part', 'unfinished']);
  },
  TIMEOUT_MS,
);
