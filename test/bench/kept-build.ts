/** Builds of commits, kept in the cache folder beside the stores. */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { cached } from '../../deploy/local/stores/cache.ts';
import { run } from '../../tools/program.ts';
import { git, sourceOf } from '../support/source-of.ts';

/** Resolves to the folder of the commit's build, which is made where it is missing. */
export async function keptBuild(name: string, log: (line: string) => void): Promise<string> {
  const commit = await git(['rev-parse', '--verify', `${name}^{commit}`]);
  return await cached(`build-${commit}`, log, async (folder) => {
    log(`building ${name} …`);
    await sourceOf(commit, folder);
    const inFolder = { cwd: folder };
    // Packages of its own: those of the working tree change.
    await run('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund'], inFolder);
    await run('npm', ['run', '-s', 'build'], inFolder);
    await run('npm', ['prune', '--omit=dev', '--ignore-scripts', '--no-audit'], inFolder);
    // Nothing but what a process needs is kept.
    for (const part of ['test', 'docs', 'charts'])
      await rm(join(folder, part), { recursive: true });
  });
}
