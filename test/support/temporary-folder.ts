/** A temporary folder for one run of the tests and all its processes: what is still in it at the end, a test left behind. */
/* oxlint-disable node/no-process-env -- TMPDIR is how Node and every child learn of it */
import { mkdir, mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { sweep } from '../../deploy/local/stores/cache.ts';
import { alive } from '../../deploy/local/stores/process.ts';

const STORES = 'partner-ingest-stores';
/** Made by tools for themselves, not by a test: Node's compile cache, Jest's cache, and where stores have had their folders. */
const OF_TOOLS = new RegExp(`^(node-compile-cache|jest_\\w+|${STORES})$`);

let folder: string | undefined;

/** Makes it the temporary folder of this process and its children; removes those of runs that were killed. */
export async function openTemporaryFolder(): Promise<void> {
  const base = join(tmpdir(), 'partner-ingest-tests');
  await mkdir(base, { recursive: true });
  await sweep(base, alive);
  folder = await mkdtemp(join(base, `${process.pid}-`));
  process.env['TMPDIR'] = folder;
}

/** Removes it, and gives the names of what was left in it. */
export async function closeTemporaryFolder(): Promise<string[]> {
  if (folder === undefined) return [];
  const left: string[] = [];
  for (const name of await readdir(folder)) {
    if (!OF_TOOLS.test(name)) left.push(name);
    else if (name === STORES) left.push(...(await readdir(join(folder, name))));
  }
  await rm(folder, { recursive: true });
  return left;
}
