/* oxlint-disable node/no-process-env -- the place of the cache is a setting of the person, not of the service */
// The cache of what the stores are made of: where it is, and how a part of it is made whole, once, by one process.

import { spawn } from 'node:child_process';
import { mkdir, readdir, rename, rm, stat } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import { tied } from './process.ts';
import { messageOf } from './wait.ts';

const LOCK_NOTICE_MS = 1_000;
const LOCK_HELD = 'held';
const UNFINISHED = '.unfinished';

/** `${XDG_CACHE_HOME:-~/.cache}/partner-ingest/stores`. */
export function cacheDir(): string {
  const base = process.env['XDG_CACHE_HOME'] ?? '';
  return join(base === '' ? join(homedir(), '.cache') : base, 'partner-ingest', 'stores');
}

/** Where the output of the installation of this part is kept. */
export function installLog(part: string): string {
  return join(cacheDir(), `${part}.log`);
}

/** Says whether this part is there, whole. */
export async function isCached(part: string): Promise<boolean> {
  return await exists(join(cacheDir(), part));
}

/** Says whether there is a file or directory at this path. */
export async function exists(path: string): Promise<boolean> {
  return await stat(path).then(
    () => true,
    () => false,
  );
}

/**
 * Gives the path of a part of the cache. When it is missing, `make` makes it at another path and it is renamed when whole,
 * under a lock that the kernel lets go of if this process dies: nobody ever sees half a part, and it is made once.
 */
export async function cached(
  part: string,
  log: (line: string) => void,
  make: (path: string) => Promise<void>,
): Promise<string> {
  const path = join(cacheDir(), part);
  // Two stores of this process that need the same part share one making.
  const making = inThisProcess.get(path) ?? makeOnce(path, part, log, make);
  inThisProcess.set(path, making);
  try {
    return await making;
  } finally {
    inThisProcess.delete(path);
  }
}

const inThisProcess = new Map<string, Promise<string>>();

async function makeOnce(
  path: string,
  part: string,
  log: (line: string) => void,
  make: (path: string) => Promise<void>,
): Promise<string> {
  if (await exists(path)) return path;
  await mkdir(cacheDir(), { recursive: true });
  const release = await lock(join(cacheDir(), `${part}.lock`), () =>
    log(`waiting for another process that makes ${part} …`),
  );
  try {
    if (await exists(path)) return path;
    const unfinished = `${path}${UNFINISHED}`;
    // What a killed installation left; nobody else works on it while we hold the lock.
    await rm(unfinished, { recursive: true, force: true });
    try {
      await make(unfinished);
    } catch (error) {
      throw new Error(
        `making ${part}, which the stores need here, failed: ${messageOf(error)}\nTry again, or give the stores another ` +
          'way: MONGODB_URI and REDIS_URL, a Docker engine, or mongod and redis-server on the PATH.',
        { cause: error },
      );
    }
    await rename(unfinished, path);
    return path;
  } finally {
    await release();
  }
}

/** Takes the lock with `flock`, which holds it for as long as its standard input is open: until released, or until we die. */
async function lock(file: string, onWaiting: () => void): Promise<() => Promise<void>> {
  const [program = '', ...args] = await tied(['flock', file, 'sh', '-c', `echo ${LOCK_HELD}; exec cat`]);
  const holder = spawn(program, args, { stdio: ['pipe', 'pipe', 'inherit'], detached: true });
  const ended = new Promise<void>((resolve) => {
    holder.once('exit', () => resolve());
    holder.once('error', () => resolve());
  });
  const notice = setTimeout(onWaiting, LOCK_NOTICE_MS);
  const held = await new Promise<boolean>((resolve) => {
    holder.stdout.once('data', () => resolve(true));
    void ended.then(() => resolve(false));
  });
  clearTimeout(notice);
  if (!held)
    throw new Error(`could not take the lock ${file}: is util-linux (flock) installed, and the directory writable?`);
  return async () => {
    holder.stdin.end();
    await ended;
  };
}

/** Removes temporary data of processes that are gone; the names begin with the number of the process that made them. */
export async function sweep(directory: string, isAlive: (pid: number) => boolean): Promise<void> {
  const names = await readdir(directory).catch(() => []);
  const stale = names.filter((name) => /^\d+-/.test(name) && !isAlive(Number.parseInt(name, 10)));
  await Promise.all(
    stale.map((name) => rm(join(directory, name), { recursive: true, force: true }).catch(() => undefined)),
  );
}
