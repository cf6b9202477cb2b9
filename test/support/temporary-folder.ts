/** A temporary folder for a test run; files that are left in it at the end are a fault. */
/* oxlint-disable node/no-process-env -- TMPDIR is how Node and every child learn of it */
import { readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { temporaryFolder } from '../../deploy/local/stores/cache.ts';

const STORES = /^partner-ingest-stores-\d+$/;
/** Files of tools: Node's compile cache, Jest's cache. */
const OF_TOOLS = /^(node-compile-cache|jest_\w+)$/;

let folder: string | undefined;

/** Makes it the temporary folder of this process and its children; removes those of killed runs. */
export async function openTemporaryFolder(): Promise<void> {
  folder = await temporaryFolder('partner-ingest-tests');
  process.env['TMPDIR'] = folder;
}

/** Removes it; returns the names of files left in it. */
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
