/**
 * A temporary folder for one run of the tests and all its processes: what is still in it at the
 * end, a test left behind.
 */
/* oxlint-disable node/no-process-env -- TMPDIR is how Node and every child learn of it */
import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { temporaryFolder } from '../../deploy/local/stores/cache.ts';

/** Where stores have had their folders. */
const STORES = /^partner-ingest-stores-\d+$/;
/** Made by tools for themselves, not by a test: Node's compile cache, Jest's cache. */
const OF_TOOLS = /^(node-compile-cache|jest_\w+)$/;

let folder: string | undefined;

/**
 * Makes it the temporary folder of this process and its children; removes those of runs that were
 * killed.
 */
export async function openTemporaryFolder(): Promise<void> {
  folder = await temporaryFolder('partner-ingest-tests');
  process.env['TMPDIR'] = folder;
}

/** Removes it, and gives the names of what was left in it. */
export async function closeTemporaryFolder(): Promise<string[]> {
  if (folder === undefined) return [];
  const left: string[] = [];
  for (const name of await readdir(folder)) {
    if (STORES.test(name)) left.push(...(await readdir(join(folder, name))));
    else if (!OF_TOOLS.test(name)) left.push(name);
  }
  await rm(folder, { recursive: true });
  return left;
}
