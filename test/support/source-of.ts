/** Other versions of this repository: earlier commits, and changed copies. */
import { cp, mkdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { run } from '../../tools/program.ts';
import { ROOT } from '../../tools/root.ts';
import { mutated, type Change } from '../mutants/list.ts';

/** What a version runs with; its packages may be shared. */
const RUNS_WITH = ['cmd', 'internal', 'package.json', 'package-lock.json'];

/** Puts the files of `commit` into the folder, which is made. */
export async function sourceOf(commit: string, folder: string): Promise<void> {
  await mkdir(folder, { recursive: true });
  const archive = join(folder, '.source.tar');
  await git(['archive', '--output', archive, commit]);
  await run('tar', ['-xf', archive, '-C', folder]);
  await rm(archive);
}

export async function git(args: readonly string[]): Promise<string> {
  return (await run('git', args, { cwd: ROOT })).out.trim();
}

/** The version from which an upgrade is tested. */
export async function baseCommit(): Promise<string> {
  return (await readFile(join(ROOT, 'test/upgrade/base'), 'utf8')).trim();
}

/** Copies what the working tree runs with, with these changes; packages are shared. */
export async function changedCopy(folder: string, changes: readonly Change[]): Promise<string> {
  for (const name of RUNS_WITH) await cp(join(ROOT, name), join(folder, name), { recursive: true });
  await sharePackages(folder);
  for (const change of changes) {
    const file = join(folder, change.file);
    const text = mutated(await readFile(file, 'utf8'), change);
    if (text === undefined) throw new Error(`${change.file} has not exactly one: ${change.find}`);
    await writeFile(file, text);
  }
  return folder;
}

export const sharePackages = (folder: string): Promise<void> =>
  symlink(join(ROOT, 'node_modules'), join(folder, 'node_modules'));
