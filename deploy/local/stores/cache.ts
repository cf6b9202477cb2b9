/* oxlint-disable node/no-process-env -- the place of the cache is a setting of the person, not of the service */
// The cache of what the stores are made of: where it is, and how a part of it is made whole, once,
// by one process.

import { mkdir, mkdtemp, readdir, rename, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { homedir, tmpdir } from 'node:os';
import { join } from 'node:path';
import process from 'node:process';
import { setTimeout as sleep } from 'node:timers/promises';
import { alive } from './process.ts';
import { messageOf } from './wait.ts';

const LOCK_POLL_MS = 200;
const LOCK_TOUCH_MS = 1_000;
const LOCK_STALE_MS = 15_000;

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
 * Gives the path of a part of the cache. When it is missing, `make` makes it at another path and it
 * is renamed when whole, under a lock: nobody ever sees half a part, and others wait for it instead
 * of making it, too.
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
  const release = await lock(join(cacheDir(), `${part}.making`), () =>
    log(`waiting for another process that makes ${part} …`),
  );
  try {
    if (await exists(path)) return path;
    // What killed installations left.
    const folder = join(cacheDir(), 'unfinished');
    await mkdir(folder, { recursive: true });
    await sweep(folder);
    const unfinished = join(folder, `${process.pid}-${part}`);
    try {
      await make(unfinished);
    } catch (error) {
      await rm(unfinished, { recursive: true, force: true }).catch(() => undefined);
      throw new Error(`making ${part} failed: ${messageOf(error)}`, { cause: error });
    }
    if (!(await exists(path))) await rename(unfinished, path);
    return path;
  } finally {
    await release();
  }
}

/**
 * Takes the lock: a file that only one process can create, and that its holder touches all the
 * time. One that nobody touches was left by a dead process and is taken away. Two waiters may do
 * that at once; then both make the part, which does no harm.
 */
async function lock(file: string, onWaiting: () => void): Promise<() => Promise<void>> {
  let told = false;
  while (!(await taken(file))) {
    const touchedAt = await stat(file).then(({ mtimeMs }) => mtimeMs, Date.now);
    if (Date.now() - touchedAt > LOCK_STALE_MS) await rm(file, { force: true });
    if (!told) onWaiting();
    told = true;
    await sleep(LOCK_POLL_MS);
  }
  const touching = setInterval(
    () => void utimes(file, new Date(), new Date()).catch(() => undefined),
    LOCK_TOUCH_MS,
  );
  return async () => {
    clearInterval(touching);
    await rm(file, { force: true });
  };
}

function taken(file: string): Promise<boolean> {
  return writeFile(file, String(process.pid), { flag: 'wx' }).then(
    () => true,
    (error: NodeJS.ErrnoException) => {
      if (error.code === 'EEXIST') return false;
      throw error;
    },
  );
}

/**
 * Makes a temporary folder for this process below one of this user (another user's could not be
 * written to), and removes there what processes left that are gone.
 */
export async function temporaryFolder(parent: string, name = ''): Promise<string> {
  const base = join(tmpdir(), `${parent}-${process.getuid?.() ?? 0}`);
  await mkdir(base, { recursive: true });
  await sweep(base);
  return await mkdtemp(join(base, `${process.pid}-${name}`));
}

/**
 * Removes temporary data of processes that are gone; the names begin with the number of the process
 * that made them.
 */
async function sweep(directory: string): Promise<void> {
  const names = await readdir(directory).catch(() => []);
  const stale = names.filter((name) => /^\d+-/.test(name) && !alive(Number.parseInt(name, 10)));
  await Promise.all(
    stale.map((name) =>
      rm(join(directory, name), { recursive: true, force: true }).catch(() => undefined),
    ),
  );
}
