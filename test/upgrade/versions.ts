/** The two versions: the commit in `base`, and the working tree. */
import { cp, readFile, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parse } from 'yaml';
import { run } from '../../tools/program.ts';
import { ROOT } from '../../tools/root.ts';
import { mutated, type Change } from '../mutants/list.ts';
import { read } from '../support/pages.ts';
import { baseCommit, sourceOf } from '../support/source-of.ts';
import type { Version } from './makers.ts';

const LOCK = 'package-lock.json';
const SHARED = ['cmd', 'internal', 'package.json', LOCK];

export interface Break {
  readonly edits: readonly Change[];
  /** A pattern of what the run must report. */
  readonly found: string;
}

export const breaks = parse(read('test/upgrade/breaks.yaml')) as Readonly<Record<string, Break>>;

export const baseVersion = async (parent: string): Promise<Version> => ({
  name: 'base',
  folder: await versionAt(await baseCommit(), join(parent, 'base')),
});

/** Resolves to `folder`, with a commit that shares our packages if its lock file is the same. */
async function versionAt(commit: string, folder: string): Promise<string> {
  await sourceOf(commit, folder);
  const lock = (place: string): Promise<string> => readFile(join(place, LOCK), 'utf8');
  if ((await lock(folder)) === (await lock(ROOT))) await sharePackages(folder);
  else await run('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund'], { cwd: folder });
  return folder;
}

/** Copies the working tree, with a deliberate break if one is asked for. */
export async function todaysVersion(parent: string, broken: Break | undefined): Promise<Version> {
  const folder = join(parent, 'today');
  for (const name of SHARED) await cp(join(ROOT, name), join(folder, name), { recursive: true });
  await sharePackages(folder);
  for (const change of broken?.edits ?? []) {
    const file = join(folder, change.file);
    const text = mutated(await readFile(file, 'utf8'), change);
    if (text === undefined) throw new Error(`${change.file} has not exactly one: ${change.find}`);
    await writeFile(file, text);
  }
  return { name: 'today', folder };
}

const sharePackages = (folder: string): Promise<void> =>
  symlink(join(ROOT, 'node_modules'), join(folder, 'node_modules'));
