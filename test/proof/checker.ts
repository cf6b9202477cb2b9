/** A checker that is not ours over a history: Porcupine, by the Go program of checker/. */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createReadStream } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { pipeline } from 'node:stream/promises';
import { cached, installLog } from '../../deploy/local/stores/cache.ts';
import { run } from '../../deploy/local/stores/process.ts';
import { goCommand } from '../../tools/go.ts';
import { ROOT } from '../../tools/root.ts';

/** What it prints; a partition is a request or a key with all its operations. */
export interface Verdict {
  readonly checker: string;
  readonly operations: number;
  readonly partitions: Readonly<Record<string, number>>;
  readonly violations: readonly {
    readonly model: string;
    readonly partition: string;
    readonly verdict: 'Illegal' | 'Unknown';
  }[];
}

const SOURCE = join(ROOT, 'test/proof/checker');
const FILES = ['main.go', 'go.mod', 'go.sum'];
const BUILD_TIMEOUT_MS = 300_000;
const UNREADABLE = 2;

/** Builds the checker once for its source, and returns its path. */
export async function findChecker(log: (line: string) => void): Promise<string> {
  const sources = await Promise.all(FILES.map((name) => readFile(join(SOURCE, name))));
  const digest = createHash('sha256').update(Buffer.concat(sources)).digest('hex');
  const part = `proof-checker-${digest.slice(0, 12)}`;
  const folder = await cached(part, log, async (path) => {
    const go = await goCommand(log);
    log('building the checker of histories with Go (a few seconds, once) …');
    await run({
      command: [go, 'build', '-C', SOURCE, '-trimpath', '-o', join(path, 'checker'), '.'],
      env: { ...process.env, CGO_ENABLED: '0' },
      logFile: installLog(part),
      timeoutMs: BUILD_TIMEOUT_MS,
    });
  });
  return join(folder, 'checker');
}

/** Judges the history in this file. Throws if it cannot be read. */
export async function checkHistory(file: string): Promise<Verdict> {
  const checker = await findChecker(() => undefined);
  const child = spawn(checker, { stdio: ['pipe', 'pipe', 'pipe'] });
  const ended = once(child, 'close') as Promise<[number | null]>;
  const [out, errors] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    // It ends early at a line that it cannot read, and says so itself.
    pipeline(createReadStream(file), child.stdin).catch(() => undefined),
  ]);
  const [code] = await ended;
  if (code === null || code >= UNREADABLE) throw new Error(`${file}: ${errors.trim()}`);
  return JSON.parse(out) as Verdict;
}
