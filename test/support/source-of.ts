/** Earlier versions of this repository. */
import { mkdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { run } from '../../tools/program.ts';
import { ROOT } from '../../tools/root.ts';

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
