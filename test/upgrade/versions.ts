/** The two versions: the commit in `base`, and the working tree. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parse } from 'yaml';
import { run } from '../../tools/program.ts';
import { ROOT } from '../../tools/root.ts';
import type { Change } from '../mutants/list.ts';
import { read } from '../support/pages.ts';
import { baseCommit, changedCopy, sharePackages, sourceOf } from '../support/source-of.ts';
import type { Version } from './makers.ts';

const LOCK = 'package-lock.json';

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
export const todaysVersion = async (
  parent: string,
  broken: Break | undefined,
): Promise<Version> => ({
  name: 'today',
  folder: await changedCopy(join(parent, 'today'), broken?.edits ?? []),
});
